# SPDX-License-Identifier: Apache-2.0
"""Handlers in every shape that authors write: a server's app answers exactly as a plain FastAPI app does."""

import dataclasses
import datetime
import decimal
import enum
import functools
from collections.abc import Callable
from typing import Annotated, Any, Union

import pytest
from fastapi import Body, Depends, FastAPI, Header, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.testclient import TestClient
from pydantic import BaseModel, ConfigDict, Field, computed_field, field_serializer, field_validator

from nemo_gym.server_utils import SimpleServer

NOON = datetime.datetime(2020, 1, 2, 12, tzinfo=datetime.UTC)


class Colour(enum.Enum):
    RED = "red"


class Measured(float):
    """As numpy's scalars are: a float and yet not a float."""


@dataclasses.dataclass
class Point:
    x: int
    when: datetime.datetime


class Ask(BaseModel):
    x: int
    note: str = Field(default="none", max_length=5)

    @field_validator("x")
    @classmethod
    def small(cls, value: int) -> int:
        if value > 100:
            raise ValueError("too large")
        return value


class LooseAsk(Ask):
    model_config = ConfigDict(extra="allow")


class Answer(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    value: int = Field(alias="theValue")
    when: datetime.datetime = NOON

    @computed_field
    def double(self) -> int:
        return self.value * 2

    @field_serializer("when")
    def only_the_year(self, value: datetime.datetime) -> int:
        return value.year


class RichAnswer(Answer):
    secret: str = "kept back by the annotation"


ODDITIES = {
    "decimal": decimal.Decimal("1.5"),
    "time": NOON,
    "enum": Colour.RED,
    "point": Point(1, NOON),
    "tuple": (1, 2),
    "none": None,
    "model": Ask(x=1),
    "models": [Ask(x=1)],
    3: "a key that is no string",
}


def timed(handler: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(handler)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await handler(*args, **kwargs)

    return wrapper


async def body_only(body: Ask) -> int:
    return body.x


async def body_default(body: Ask = Body()) -> int:
    return body.x


async def body_annotated(body: Annotated[Ask, Body()]) -> int:
    return body.x


async def body_embedded(body: Annotated[Ask, Body(embed=True)]) -> int:
    return body.x


async def body_optional(body: Ask | None = None) -> bool:
    return body is None


async def body_defaults_to_none(body: Ask = Body(default=None)) -> bool:
    return body is None


async def body_union(body: Union[Ask, dict[str, str]]) -> str:  # noqa: UP007
    return type(body).__name__


async def body_list(body: list[Ask]) -> list[Ask]:
    return body


async def body_dict(body: dict) -> dict:
    return body


async def body_any(body: Any = Body(None)):
    return body


async def body_extra(body: LooseAsk) -> dict[str, Any]:
    return body.model_dump()


async def two_bodies(one: Ask, two: Ask) -> int:
    return one.x + two.x


async def body_and_query(body: Ask, loud: bool = Query(default=False)) -> str:
    return f"{body.x}{'!' if loud else ''}"


async def dependency_and_header(body: Ask, extra: str = Depends(lambda: "dep"), x_style: str = Header("plain")) -> str:
    return f"{body.x} {extra} {x_style}"


async def everything_in_another_order(response: Response, body: Ask, request: Request) -> str:
    response.headers["x-seen"] = request.method
    response.set_cookie("seen", "yes")
    response.status_code = 202
    return (await request.body()).decode()


async def request_only(request: Request):
    return {"keys": sorted(await request.json()), "path": request.url.path}


def not_async(body: Ask) -> int:
    return body.x


@timed
async def decorated(body: Ask, request: Request) -> int:
    return body.x


async def oddities(body: dict):
    return ODDITIES


async def oddities_annotated(body: dict) -> dict:
    return ODDITIES


async def odd_numbers(body: dict):
    return {"score": Measured(0.5), "scores": [Measured(1.0)], "huge": 2**70}


async def answer(body: dict) -> Answer:
    return Answer(value=2)


async def answer_as_dict(body: dict) -> Answer:
    return {"theValue": 2}  # type: ignore[return-value]


async def answer_unannotated(body: dict):
    return Answer(value=2)


async def answer_of_a_subclass(body: dict) -> Answer:
    return RichAnswer(value=2)


async def answers(body: dict) -> list[Answer]:
    return [Answer(value=1), RichAnswer(value=2)]


async def nothing(body: dict) -> None:
    return None


async def own_response(body: dict) -> JSONResponse:
    return JSONResponse({"a": 1}, status_code=418, headers={"x-own": "1"})


async def own_response_and_cookie(body: dict, response: Response):
    response.set_cookie("c", "d")
    return PlainTextResponse("text")


async def stream(body: dict):
    return StreamingResponse(iter([b"a", b"b"]))


async def refused(body: dict) -> None:
    raise HTTPException(409, detail={"why": "taken"}, headers={"x-why": "taken"})


HANDLERS = [
    body_only,
    body_default,
    body_annotated,
    body_embedded,
    body_optional,
    body_defaults_to_none,
    body_union,
    body_list,
    body_dict,
    body_any,
    body_extra,
    two_bodies,
    body_and_query,
    dependency_and_header,
    everything_in_another_order,
    request_only,
    not_async,
    decorated,
    oddities,
    oddities_annotated,
    odd_numbers,
    answer,
    answer_as_dict,
    answer_unannotated,
    answer_of_a_subclass,
    answers,
    nothing,
    own_response,
    own_response_and_cookie,
    stream,
    refused,
]
BODIES: list[Any] = [
    {"x": 1},
    {"x": "1", "more": None},
    {"x": "many", "note": "too long a note"},
    {"x": 101},
    {},
    {"body": {"x": 1}},
    {"one": {"x": 1}, "two": {"x": 2}},
    [{"x": 1}],
    {"a": "b"},
    "text",
    None,
]


def client(app: FastAPI) -> TestClient:
    for handler in HANDLERS:
        app.post(f"/{handler.__name__}")(handler)
    return TestClient(app, raise_server_exceptions=False)


PLAIN, OURS = client(FastAPI()), client(SimpleServer.new_app())


def facts(reply: Any) -> dict[str, Any]:
    headers = {name: value for name, value in reply.headers.items() if name != "content-length"}
    body = reply.json() if "json" in headers.get("content-type", "") else reply.content
    return {"status": reply.status_code, "body": _without_wording(body), "headers": headers}


def _without_wording(body: Any) -> Any:
    """A 422 without what the versions of pydantic and JSON parsers word differently."""
    if not isinstance(body, dict) or not isinstance(body.get("detail"), list):
        return body
    return [
        {key: value for key, value in problem.items() if key in ("type", "loc", "msg")} for problem in body["detail"]
    ]


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.__name__)
def test_a_handler_answers_as_under_plain_fastapi(handler: Callable[..., Any]) -> None:
    path = f"/{handler.__name__}"
    for body in BODIES:
        assert facts(OURS.post(path, json=body)) == facts(PLAIN.post(path, json=body)), body
    assert facts(OURS.post(path)) == facts(PLAIN.post(path)), "no body"
    broken = {"content": b'{"x": ', "headers": {"content-type": "application/json"}}
    ours, plain = OURS.post(path, **broken), PLAIN.post(path, **broken)  # type: ignore[arg-type]
    assert ours.status_code == plain.status_code
    form = {"content": b"x=1", "headers": {"content-type": "text/plain"}}
    assert facts(OURS.post(path, **form))["status"] == facts(PLAIN.post(path, **form))["status"]  # type: ignore[arg-type]


def test_the_documentation_routes_work() -> None:
    ours, plain = OURS.get("/openapi.json").json(), PLAIN.get("/openapi.json").json()
    assert set(ours["paths"]) == set(plain["paths"])
    assert ours["paths"]["/answer"] == plain["paths"]["/answer"]
    assert OURS.get("/docs").status_code == 200
