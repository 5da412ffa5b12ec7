# SPDX-License-Identifier: Apache-2.0
"""GymRoute gives what FastAPI's own route gives, in one go."""

import pytest
from fastapi import Body, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import PlainTextResponse
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel, field_validator
from starlette.testclient import TestClient

from nemo_gym._servers.direct_calls.route import GymRoute, JsonHandler


class City(BaseModel):
    name: str
    people: int = 0

    @field_validator("people")
    @classmethod
    def not_negative(cls, value: int) -> int:
        if value < 0:
            raise ValueError("negative")
        return value


class Report(BaseModel):
    city: City
    weather: str


class DetailedReport(Report):
    secret: str = "not declared by the route"


async def plain(body: City) -> Report:
    return Report(city=body, weather="cold")


async def any_order(response: Response, request: Request, body: City = Body()) -> Report:
    response.set_cookie("seen", request.headers["user-agent"])
    response.status_code = 202
    return DetailedReport(city=body, weather="cold")


async def without_annotation(body: City):
    return {"city": body, "items": [1, (2, 3)]}


async def own_response(body: City) -> Report:
    return PlainTextResponse("as it is", status_code=418)


async def wrong_reply(body: City) -> Report:
    return {"nothing": "fits"}


async def refused(body: City) -> Report:
    raise HTTPException(403, detail="not you")


async def with_query(body: City, lang: str = "en", user: str = Depends(lambda: "u")) -> dict[str, str]:
    return {"lang": lang, "user": user, "city": body.name}


HANDLERS = {f"/{f.__name__}": f for f in (plain, any_order, without_annotation, own_response, refused, with_query)}


def client_for(route_class: type | None) -> TestClient:
    app = FastAPI()
    if route_class is not None:
        app.router.route_class = route_class
    for path, handler in HANDLERS.items():
        app.post(path)(handler)
    app.post("/wrong_reply")(wrong_reply)
    return TestClient(app, raise_server_exceptions=False)


OURS, FASTAPIS = client_for(GymRoute), client_for(None)


@pytest.mark.parametrize("path", HANDLERS)
@pytest.mark.parametrize(
    "body", [{"name": "Oslo"}, {"name": "Oslo", "people": 7}, {"people": 7}, {"name": 1}, [], None]
)
def test_replies_are_those_of_fastapis_own_route(path, body):
    ours, theirs = OURS.post(path, json=body), FASTAPIS.post(path, json=body)
    assert (ours.status_code, ours.headers.get("set-cookie")) == (theirs.status_code, theirs.headers.get("set-cookie"))
    assert ours.text == theirs.text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
@settings(max_examples=60, deadline=None)
def test_validation_errors_are_those_of_fastapis_own_route(body):
    ours, theirs = OURS.post("/plain", json=body), FASTAPIS.post("/plain", json=body)
    assert (ours.status_code, ours.json()) == (theirs.status_code, theirs.json())


def test_a_body_that_is_not_json_is_a_422_that_says_where():
    reply = OURS.post("/plain", content=b'{"name": ', headers={"content-type": "application/json"})
    assert reply.status_code == 422
    assert reply.json()["detail"][0]["type"] == "json_invalid"
    assert reply.json()["detail"][0]["loc"] == ["body", 9]


def test_a_body_that_is_not_utf8_is_a_422():
    reply = OURS.post("/plain", content=b'{"name": "\xff"}', headers={"content-type": "application/json"})
    assert reply.status_code == 422


def test_a_missing_body_is_a_422():
    assert OURS.post("/plain").json()["detail"] == [
        {"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}
    ]


def test_a_body_of_another_content_type_is_refused():
    assert OURS.post("/plain", content=b"name=Oslo", headers={"content-type": "text/plain"}).status_code == 422


def test_fields_that_the_reply_type_does_not_declare_are_not_sent():
    assert "secret" not in OURS.post("/any_order", json={"name": "Oslo"}).json()


def test_a_reply_that_does_not_fit_its_type_is_a_server_error():
    assert OURS.post("/wrong_reply", json={"name": "Oslo"}).status_code == 500


def test_handlers_with_more_than_body_request_and_response_are_left_to_fastapi():
    app = FastAPI()
    app.router.route_class = GymRoute
    app.post("/plain")(plain)
    app.post("/with_query")(with_query)
    short = {route.path: isinstance(route.app, JsonHandler) for route in app.routes if isinstance(route, GymRoute)}
    assert short == {"/plain": True, "/with_query": False}
