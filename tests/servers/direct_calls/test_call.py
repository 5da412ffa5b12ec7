# SPDX-License-Identifier: Apache-2.0
"""A call inside the process is indistinguishable from one over HTTP."""

import asyncio

import aiohttp
import orjson
import pytest
from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel

from nemo_gym._servers.direct_calls import running_apps as registry
from nemo_gym._servers.direct_calls.call import call_asgi
from nemo_gym._servers.direct_calls.response import InProcessResponse
from nemo_gym._servers.processes.server_host import InlineServer, serve_inline
from nemo_gym._transport.call_errors import ServerDeadlineExceeded, ServerResponseError


class Question(BaseModel):
    text: str


def echo_app() -> FastAPI:
    app = FastAPI()

    @app.post("/echo")
    async def echo(body: Question, request: Request, response: Response) -> dict:
        response.set_cookie("last", body.text.replace(" ", "-"))
        return {"text": body.text, "cookies": dict(request.cookies), "query": dict(request.query_params)}

    @app.post("/teapot")
    async def teapot() -> None:
        raise HTTPException(418, "short and stout")

    @app.post("/slow")
    async def slow() -> None:
        await asyncio.sleep(30)

    return app


async def over_http(app: FastAPI, free_port: int, path: str, **kwargs) -> dict:
    async with serve_inline([InlineServer("echo", "127.0.0.1", free_port, app)]), aiohttp.ClientSession() as session:
        async with session.post(f"http://127.0.0.1:{free_port}{path}", **kwargs) as reply:
            return await everything(reply)


async def in_process(app: FastAPI, path: str, *, json: object = None, **kwargs) -> dict:
    body = orjson.dumps(json) if json is not None else b""
    headers = {"Content-Type": "application/json"} if body else {}
    reply = await call_asgi(
        app, "POST", f"http://x{path}", path, address=("x", 1), body=body, headers=headers, timeout_s=10, **kwargs
    )
    return await everything(reply)


async def everything(reply) -> dict:
    return {
        "status": reply.status,
        "ok": reply.ok,
        "reason": reply.reason,
        "type": reply.content_type,
        "json": await reply.json(),
        "text": await reply.text(),
        "bytes": await reply.read(),
        "cookies": {name: (m.value, m["path"], m["samesite"]) for name, m in reply.cookies.items()},
        "length": reply.headers["Content-Length"],
    }


@pytest.mark.parametrize(
    ("path", "kwargs"),
    [
        ("/echo", {"json": {"text": "good day"}}),
        ("/echo?lang=no", {"json": {"text": "hei"}, "cookies": {"a": "1", "b": "2"}}),
        ("/echo", {"json": {"text": "hei"}, "params": {"lang": "no"}}),
        ("/echo", {"json": {"txet": 1}}),
        ("/teapot", {}),
        ("/nowhere", {}),
    ],
)
async def test_status_headers_cookies_and_body_are_the_same_as_over_http(path, kwargs, unused_tcp_port):
    assert await in_process(echo_app(), path, **kwargs) == await over_http(echo_app(), unused_tcp_port, path, **kwargs)


async def test_cookies_of_a_reply_can_be_sent_back_as_they_are():
    app = echo_app()
    first = await call_asgi(
        app,
        "POST",
        "u",
        "/echo",
        address=("x", 1),
        body=b'{"text":"one"}',
        headers={"content-type": "application/json"},
        timeout_s=5,
    )
    second = await in_process(app, "/echo", json={"text": "two"}, cookies=first.cookies)
    assert second["json"]["cookies"] == {"last": "one"}


async def test_content_can_be_read_in_pieces():
    reply = InProcessResponse("POST", "http://x/", 200, [], b"one\ntwo\n")
    assert await reply.content.readline() == b"one\n"
    assert await reply.content.read(2) == b"tw"
    assert await reply.content.read() == b"o\n"
    assert reply.content.at_eof()


async def test_raise_for_status_carries_the_body():
    reply = InProcessResponse("POST", "http://x/", 503, [], b"busy")
    with pytest.raises(ServerResponseError) as caught:
        reply.raise_for_status()
    assert caught.value.response_content == b"busy"


async def test_a_call_that_takes_too_long_ends_at_its_deadline():
    with pytest.raises(ServerDeadlineExceeded, match=r"0\.05"):
        await call_asgi(echo_app(), "POST", "http://x/slow", "/slow", address=("x", 1), timeout_s=0.05)


async def test_an_app_is_only_called_from_the_event_loop_it_lives_on():
    app = echo_app()
    registry.host_app("somewhere", 1, app)
    try:
        hosted = registry.find_app("somewhere", 1)
        assert hosted is not None
        assert hosted.app is app

        async def from_another_loop() -> object:
            return registry.find_app("somewhere", 1)

        assert await asyncio.to_thread(asyncio.run, from_another_loop()) is None
    finally:
        registry.unhost_app("somewhere", 1)
    assert registry.find_app("somewhere", 1) is None
