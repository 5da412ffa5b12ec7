# SPDX-License-Identifier: Apache-2.0
"""The short way to a JSON handler is not to be told from FastAPI's own, except by what it costs."""

import pytest
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from nemo_gym._servers.direct_calls.route import GymRoute
from nemo_gym._servers.http.app_with_plain_routes import GymApp


class City(BaseModel):
    name: str


class NoSuchCity(Exception):
    pass


async def look_up(body: City, request: Request) -> dict[str, object]:
    if body.name == "Atlantis":
        raise NoSuchCity(body.name)
    if body.name == "Area 51":
        raise HTTPException(403, "not you", headers={"x-reason": "secret"})
    if body.name == "Babel":
        raise RuntimeError("confusion")
    scope = request.scope
    return {
        "city": body.name,
        "path": scope["route"].path,
        "again": (await request.json())["name"],
        **request.path_params,
    }


async def anything(path: str) -> dict[str, str]:
    return {"anything": path}


def without_the_short_way() -> FastAPI:
    app = FastAPI()
    app.router.route_class = GymRoute
    return app


def finished(app: FastAPI) -> TestClient:
    async def no_such_city(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"no such city": str(error), "asked at": request.url.path}, status_code=404)

    app.add_exception_handler(NoSuchCity, no_such_city)
    app.post("/look_up")(look_up)
    app.post("/in/{country}/look_up")(look_up)
    app.post("/{path:path}")(anything)
    return TestClient(app, raise_server_exceptions=False)


@pytest.mark.parametrize("path", ["/look_up", "/in/norway/look_up", "/look_up/", "/elsewhere", "/docs"])
@pytest.mark.parametrize("city", ["Oslo", "Atlantis", "Area 51", "Babel"])
def test_answers_and_errors_are_those_of_fastapi(path, city):
    ours = finished(GymApp()).post(path, json={"name": city})
    theirs = finished(without_the_short_way()).post(path, json={"name": city})
    assert (ours.status_code, ours.text, ours.headers) == (theirs.status_code, theirs.text, theirs.headers)


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD", "OPTIONS"])
def test_other_methods_are_refused_as_fastapi_does(method):
    ours = finished(GymApp()).request(method, "/look_up")
    theirs = finished(without_the_short_way()).request(method, "/look_up")
    assert (ours.status_code, ours.headers.get("allow")) == (theirs.status_code, theirs.headers.get("allow"))


def test_a_body_that_is_no_json_is_refused_as_fastapi_does():
    form = {"content": b"name=Oslo", "headers": {"content-type": "application/x-www-form-urlencoded"}}
    ours, theirs = finished(GymApp()), finished(without_the_short_way())
    assert ours.post("/look_up", **form).json() == theirs.post("/look_up", **form).json()


def test_a_route_declared_earlier_comes_first():
    app = GymApp()
    app.post("/{path:path}")(anything)
    app.post("/look_up")(look_up)
    assert TestClient(app).post("/look_up", json={"name": "Oslo"}).json() == {"anything": "look_up"}


def test_routes_may_change_after_the_first_request():
    app = GymApp()
    app.post("/look_up")(look_up)
    client = TestClient(app)
    assert client.post("/look_up", json={"name": "Oslo"}).status_code == 200
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", "") != "/look_up"]
    assert client.post("/look_up", json={"name": "Oslo"}).status_code == 404
    app.post("/look_up")(look_up)
    assert client.post("/look_up", json={"name": "Oslo"}).status_code == 200


def test_middleware_runs_however_it_was_added_and_is_listed_as_it_was_added():
    seen: list[str] = []

    class Noting:
        def __init__(self, app, name):
            self.app, self.name = app, name

        async def __call__(self, scope, receive, send):
            seen.append(self.name)
            await self.app(scope, receive, send)

    app = GymApp()
    app.post("/look_up")(look_up)
    app.add_middleware(Noting, name="inner")
    app.add_middleware(Noting, name="outer")
    app.user_middleware.append(Middleware(Noting, name="innermost"))
    with TestClient(app) as client:
        seen.clear()
        client.post("/look_up", json={"name": "Oslo"})
    assert seen == ["outer", "inner", "innermost"]
    assert len(app.user_middleware) == 3


def test_a_handler_that_raises_runs_once():
    calls: list[str] = []

    async def fail(body: City) -> None:
        calls.append(body.name)
        raise HTTPException(409, "busy")

    app = GymApp()
    app.post("/fail")(fail)
    assert TestClient(app).post("/fail", json={"name": "Oslo"}).status_code == 409
    assert calls == ["Oslo"]
