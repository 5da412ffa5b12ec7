# SPDX-License-Identifier: Apache-2.0
"""A direct call of a handler is told from one through the whole stack by nothing but its speed."""

import asyncio
import gc
import weakref
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, ConfigDict, field_serializer, field_validator, model_validator

from nemo_gym._servers.direct_calls.call import call_asgi
from nemo_gym._servers.direct_calls.object_request import ObjectRequest
from nemo_gym._servers.direct_calls.objects import list_object_fields, list_read_fields
from nemo_gym._servers.direct_calls.response import InProcessResponse, ObjectResponse
from nemo_gym._servers.direct_calls.running_apps import find_app
from nemo_gym._servers.http.session_cookie import SessionCookieMiddleware
from nemo_gym._transport.http_calls import encode_json
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient, get_response_model, lazy_cookies
from nemo_gym.testing import asked, reply, running

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}
PARAMS = NeMoGymResponseCreateParamsNonStreaming(input=[{"role": "user", "content": "hi"}], temperature=0.5)


def answered(**more: Any) -> dict[str, Any]:
    return {"responses_create_params": PARAMS, "response": reply("cold"), **more}


class Scored(BaseVerifyResponse):
    note: str
    seen: list[int]

    @field_serializer("note")
    def shout(self, note: str) -> str:
        return note.upper()


class Noted(BaseVerifyRequest):
    note: str = "quiet"
    numbers: list[int] = []


class WithExtras(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class AnyFields(BaseModel):
    model_config = ConfigDict(extra="allow")


class PlainResponse(BaseModel):
    response: dict[str, Any]


class LooksFirst(BaseVerifyRequest):
    @model_validator(mode="before")
    @classmethod
    def look(cls, data: Any) -> Any:
        assert isinstance(data["response"], dict), type(data["response"])
        return data


class World(SimpleResourcesServer):
    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        for name in (
            "word",
            "open",
            "plain",
            "first",
            "session",
            "text",
            "replace",
            "teapot",
            "crash",
            "edit",
            "edit_more",
        ):
            app.post(f"/{name}")(getattr(self, name))
        return app

    async def verify(self, body: Noted) -> Scored:  # type: ignore[override]
        body.numbers.append(4)
        body.response.output = []
        return Scored(**body.model_dump(exclude={"numbers"}), reward=1.0, seen=body.numbers)

    async def edit(self, body: BaseVerifyRequest) -> list[Any]:
        params, response = body.responses_create_params, body.response
        params.temperature = 2.0
        params.input.append(params.input[0])
        params.tools.clear()
        response.output.append(response.output[0])
        response.metadata = None
        return [params.temperature, len(params.input), len(params.tools), len(response.output)]

    async def edit_more(self, body: WithExtras) -> list[Any]:
        return await self.edit(body)

    async def word(self, body: AnyFields) -> str:
        return "tea"

    async def open(self, body: AnyFields) -> dict[str, str]:
        return {name: type(value).__name__ for name, value in (body.model_extra or {}).items()}

    async def plain(self, body: PlainResponse) -> dict[str, Any]:
        return {"id": body.response["id"]}

    async def first(self, body: LooksFirst) -> dict[str, Any]:
        return {"id": body.response.id}

    async def session(self, body: AnyFields, request: Request) -> dict[str, Any]:
        request.session["calls"] = request.session.get("calls", 0) + 1
        return {
            "calls": request.session["calls"],
            "id": request.session[SESSION_ID_KEY],
            "body": (await request.json())["n"],
            "type": request.headers["content-type"],
            "path": request.url.path,
        }

    async def text(self, body: AnyFields) -> PlainTextResponse:
        return PlainTextResponse("as it is", headers={"x-own": "1"}, status_code=203)

    async def replace(self, body: AnyFields, request: Request) -> None:
        request.scope["session"] = {**request.session, "calls": 7}

    async def teapot(self, body: AnyFields, request: Request) -> None:
        request.session["brewed"] = True
        raise HTTPException(418, "short and stout")

    async def crash(self, body: AnyFields) -> None:
        raise RuntimeError("out of tea")


async def both(client: ServerClient, path: str, json: Any) -> list[tuple[int, Any, str]]:
    """What a direct call and one through the whole stack give: status, JSON or text, content type."""
    address = client._find_address("world")
    where = (address.host, address.port)
    hosted = find_app(*where)
    assert hosted is not None
    headers = {"content-type": "application/json"}
    answers = (
        await client.post("world", path, json=json),
        await call_asgi(
            hosted.app, "POST", path, path, address=where, body=encode_json(json), headers=headers, timeout_s=10
        ),
    )
    found = []
    for answer in answers:
        is_json = answer.content_type == "application/json"
        found.append((answer.status, await (answer.json() if is_json else answer.text()), answer.content_type))
    return found


@pytest.mark.parametrize(
    ("path", "json"),
    [
        ("/verify", answered(note="hm", numbers=[1, 2])),
        ("/verify", answered(note=7)),
        ("/verify", {"responses_create_params": PARAMS}),
        ("/open", answered(note={"a": [1]})),
        ("/plain", answered()),
        ("/first", answered()),
        ("/text", {}),
        ("/word", {}),
        ("/teapot", {}),
        ("/crash", {"a": 1}),
        ("/seed_session", answered()),
        ("/nowhere", {}),
    ],
)
async def test_a_direct_call_gives_what_the_whole_stack_gives(path: str, json: Any):
    async with running(world=World) as client:
        fast, whole = await both(client, path, json)
    assert fast == whole


async def test_a_handler_sees_the_request_that_it_always_sees():
    async with running(world=World) as client:
        fast, whole = await both(client, "/session", {"n": 3})
    assert fast[1].pop("id") != whole[1].pop("id")
    assert fast == whole


async def test_a_session_goes_on_with_the_cookie_of_the_reply():
    async with running(world=World) as client:
        first = await client.post("world", "/session", json={"n": 1})
        second = await client.post("world", "/session", json={"n": 1}, cookies=first.cookies)
        assert (await second.json())["calls"] == 2
        assert (await first.json())["id"] == (await second.json())["id"]


async def test_a_session_goes_on_with_cookies_that_nobody_has_signed():
    async with running(world=World, other=World) as client:
        first = await client.post("world", "/session", json={"n": 1})
        lazy = lazy_cookies(first, None)
        second = await client.post("world", "/session", json={"n": 1}, cookies=lazy)
        again = await client.post("world", "/session", json={"n": 1}, cookies=lazy)
        whole = await client.post("world", "/text", json={}, cookies=lazy_cookies(second, lazy))
        last = await client.post("world", "/session", json={"n": 1}, cookies=whole.cookies)
        stranger = await client.post("other", "/session", json={"n": 1}, cookies=lazy)
        calls = [(await reply.json())["calls"] for reply in (first, second, again, last, stranger)]
        ids = {(await reply.json())["id"] for reply in (first, second, again, last)}
    assert calls == [1, 2, 2, 3, 1], "each call goes on from the reply whose cookies it brings"
    assert len(ids) == 1
    assert (await stranger.json())["id"] not in ids


async def test_a_session_begins_when_somebody_looks_at_it_and_is_the_same_for_all_who_bring_its_cookies(monkeypatch):
    drawn = list[str]()
    monkeypatch.setattr(SessionCookieMiddleware, "load", note_calls(SessionCookieMiddleware.load, drawn))
    async with running(world=World) as client:
        begun = await client.post("world", "/word", json={})
        unread = await client.post("world", "/word", json={}, cookies=lazy_cookies(begun, None))
        lazy = lazy_cookies(unread, None)
        assert not drawn, "no handler and no caller has looked at a session"
        replies = [await client.post("world", "/session", json={"n": 1}, cookies=lazy) for _ in range(2)]
        replies.append(await client.post("world", "/session", json={"n": 1}, cookies=begun.cookies))
        told = [await reply.json() for reply in replies]
    assert ([one["calls"] for one in told], len({one["id"] for one in told})) == ([1, 1, 1], 1)


def note_calls(method: Any, seen: list[str]) -> Any:
    def call(*args: Any) -> Any:
        seen.append(method.__name__)
        return method(*args)

    return call


async def test_a_session_of_unsigned_cookies_stays_what_it_is_when_a_handler_raises():
    async with running(world=World) as client:
        lazy = lazy_cookies(await client.post("world", "/session", json={"n": 1}), None)
        failed = await client.post("world", "/teapot", json={}, cookies=lazy)
        await client.post("world", "/crash", json={}, cookies=lazy)
        replies = [
            await client.post("world", "/session", json={"n": 1}, cookies=cookies) for cookies in (lazy, failed.cookies)
        ]
        told = [await reply.json() for reply in replies]
    assert ([one["calls"] for one in told], len({one["id"] for one in told})) == ([2, 2], 1)


async def test_cookies_of_several_servers_have_to_be_signed():
    async with running(world=World, other=World) as client:
        world = await client.post("world", "/session", json={"n": 1})
        other = await client.post("other", "/session", json={"n": 1})
        assert lazy_cookies(world, lazy_cookies(world, None)) is not None
        assert lazy_cookies(world, lazy_cookies(other, None)) is None
        assert lazy_cookies(world, {"theirs": "x"}) is None
        assert dict(lazy_cookies(world, None)) == dict(world.cookies)


async def test_a_session_that_a_handler_has_replaced_goes_on_as_the_new_one():
    async with running(world=World) as client:
        first = await client.post("world", "/replace", json={})
        second = await client.post("world", "/session", json={"n": 1}, cookies=first.cookies)
        assert (await second.json())["calls"] == 8


async def test_what_a_handler_put_into_its_session_before_it_raised_is_kept():
    async with running(world=World) as client:
        first = await client.post("world", "/session", json={"n": 1})
        failed = await client.post("world", "/teapot", json={}, cookies=first.cookies)
        last = await client.post("world", "/session", json={"n": 1}, cookies=failed.cookies)
        assert failed.status == 418
        assert (await last.json())["calls"] == 2


async def test_a_handler_that_waits_for_its_caller_to_hang_up_waits():
    request = ObjectRequest(lambda: {"type": "http", "method": "POST", "headers": []}, {"n": 1})
    assert [chunk async for chunk in request.stream() if chunk] == [b'{"n":1}']
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(request.receive(), 0.01)


async def test_a_server_cannot_change_what_the_caller_sent():
    sent = answered(note="hm", numbers=[1, 2])
    async with running(world=World) as client:
        answer = await client.post("world", "/verify", json=sent)
        assert (await answer.json())["seen"] == [1, 2, 4]
    assert sent["numbers"] == [1, 2]


async def test_a_server_that_edits_a_task_and_its_response_edits_its_own():
    params, response = asked("hi", tools=[TOOL]), reply("hello", metadata={"a": "b"})
    before = params.model_dump(), response.model_dump()
    async with running(world=World) as client:
        for path in ("/edit", "/edit_more"):
            answer = await client.post("world", path, json={"responses_create_params": params, "response": response})
            assert await answer.json() == [2.0, 2, 0, 2]
    assert (params.model_dump(), response.model_dump()) == before


async def test_a_reply_becomes_the_callers_type_as_its_bytes_would():
    class Mine(BaseVerifyResponse):
        model_config = ConfigDict(extra="allow")

    async with running(world=World) as client:
        answer = await client.post("world", "/verify", json=answered(note="hm"))
        assert isinstance(answer, ObjectResponse)
        converted = await get_response_model(answer, Mine)
        assert converted == Mine.model_validate(await answer.json())
        assert converted.note == "HM"


async def test_the_callers_copy_of_a_reply_is_its_own():
    kept = reply("cold")
    answer = ObjectResponse("POST", "http://x/", kept, None)
    mine = await get_response_model(answer, NeMoGymResponse)
    mine.output = []
    assert kept.output_text == "cold"


async def test_a_reply_with_raw_items_is_validated():
    kept = reply("cold")
    kept.output = [item.model_dump() for item in kept.output]
    mine = await get_response_model(ObjectResponse("POST", "http://x/", kept, None), NeMoGymResponse)
    assert mine.output_text == "cold"


async def test_middleware_of_others_sees_every_call():
    seen: list[str] = []

    class Watched(World):
        def setup_webserver(self) -> FastAPI:
            app = super().setup_webserver()

            @app.middleware("http")
            async def watch(request: Request, call_next: Any) -> Any:
                seen.append(request.url.path)
                return await call_next(request)

            return app

    async with running(world=Watched) as client:
        answer = await client.post("world", "/verify", json=answered(note="hm"))
        assert type(answer) is InProcessResponse
        assert (await answer.json())["reward"] == 1.0
    assert seen == ["/verify"]


def test_fields_take_objects_only_where_nobody_looks_at_raw_data():
    class Renamed(BaseModel):
        model_config = ConfigDict(populate_by_name=True)
        response: NeMoGymResponse

        @field_validator("response", mode="before")
        @classmethod
        def look(cls, value: Any) -> Any:
            return value

    assert list_object_fields(BaseVerifyRequest) == ("responses_create_params", "response")
    assert list_object_fields(LooksFirst) == ()
    assert list_object_fields(Renamed) == ()
    assert list_object_fields(dict) == ()


def test_a_class_that_keeps_what_it_does_not_know_is_sent_everything():
    assert list_read_fields(BaseVerifyRequest) == {"responses_create_params", "response"}
    assert list_read_fields(AnyFields) is None
    assert list_read_fields(LooksFirst) is None


def test_a_request_is_freed_as_soon_as_nobody_has_it():
    gc.disable()  # a run of 200,000 rollouts looks for cycles seldom
    try:
        request = ObjectRequest(lambda: {"type": "http", "headers": []}, {"input": "x" * 1000})
        assert request.value
        assert not request.headers
        gone = weakref.ref(request)
        del request
        assert gone() is None
    finally:
        gc.enable()
