# SPDX-License-Identifier: Apache-2.0
"""A GymApp answers as FastAPI does, and lets those handlers be called directly that nothing else stands around."""

import pytest
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from nemo_gym._servers.http.guard import BodyLimit, ErrorsAsJson
from nemo_gym._servers.http.gym_app import GymApp
from nemo_gym._servers.http.session_cookie import SessionCookieMiddleware


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
        "path": scope["path"],
        "again": (await request.json())["name"],
        **request.path_params,
    }


async def anything(path: str) -> dict[str, str]:
    return {"anything": path}


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
    theirs = finished(FastAPI()).post(path, json={"name": city})
    assert (ours.status_code, ours.text, ours.headers) == (theirs.status_code, theirs.text, theirs.headers)


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD", "OPTIONS"])
def test_other_methods_are_refused_as_fastapi_does(method):
    ours = finished(GymApp()).request(method, "/look_up")
    theirs = finished(FastAPI()).request(method, "/look_up")
    assert (ours.status_code, ours.headers.get("allow")) == (theirs.status_code, theirs.headers.get("allow"))


def test_a_body_that_is_no_json_is_refused_as_fastapi_does():
    form = {"content": b"name=Oslo", "headers": {"content-type": "application/x-www-form-urlencoded"}}
    ours, theirs = finished(GymApp()), finished(FastAPI())
    assert ours.post("/look_up", **form).json() == theirs.post("/look_up", **form).json()


def test_a_route_declared_earlier_comes_first():
    app = GymApp()
    app.post("/{path:path}")(anything)
    app.post("/look_up")(look_up)
    assert TestClient(app).post("/look_up", json={"name": "Oslo"}).json() == {"anything": "look_up"}


def with_own_middleware(app: FastAPI) -> FastAPI:
    app.post("/look_up")(look_up)
    app.add_middleware(SessionCookieMiddleware, cookie_name="world", secret="s", id_key="id")
    app.add_middleware(BodyLimit, limit_bytes=1000)
    app.add_middleware(ErrorsAsJson, server_name="world")
    return app


def test_a_handler_behind_our_own_middleware_can_be_called_directly():
    app = with_own_middleware(GymApp())
    assert app.find_handler("POST", "/look_up") is not None
    assert app.find_handler("GET", "/look_up") is None
    assert app.find_handler("POST", "/elsewhere") is None


@pytest.mark.parametrize("missing", [SessionCookieMiddleware, BodyLimit, ErrorsAsJson])
def test_no_handler_is_called_directly_where_a_layer_of_ours_is_missing(missing):
    app = with_own_middleware(GymApp())
    app.user_middleware = [added for added in app.user_middleware if added.cls is not missing]
    assert app.find_handler("POST", "/look_up") is None


def test_a_path_that_an_earlier_route_takes_is_left_to_the_router():
    app = GymApp()
    app.post("/{path:path}")(anything)
    assert with_own_middleware(app).find_handler("POST", "/look_up") is None


def test_routes_may_change_after_the_first_call():
    app = with_own_middleware(GymApp())
    assert app.find_handler("POST", "/look_up") is not None
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", "") != "/look_up"]
    assert app.find_handler("POST", "/look_up") is None
    app.post("/look_up")(look_up)
    assert app.find_handler("POST", "/look_up") is not None


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
