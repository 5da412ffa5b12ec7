# SPDX-License-Identifier: Apache-2.0
"""The capture middleware: what it lets through unchanged, what it records, and what it never loses."""

import asyncio
import contextlib
import re
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import orjson
import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from nemo_gym._training.capture.capture_middleware import _WRITERS, CapturedExchange, CaptureMiddleware
from nemo_gym._training.capture.capture_store import CaptureStore
from nemo_gym.token_id_capture import TokenCaptureStore, TokenDelivery, current_capture_context, delivery

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
MODEL_REF = {"type": "responses_api_models", "name": "policy_model"}


def model_app() -> FastAPI:
    app = FastAPI()

    @app.post("/v1/responses")
    async def responses(request: Request) -> Response:
        body = await request.json()
        if status := body.get("fail_with"):
            return JSONResponse({"error": "no"}, status_code=status)
        # Spaces and key order that no JSON writer of ours would choose: the bytes have to arrive as they are.
        return Response(b'{ "b": 1,\n "a": "\xc3\xa9" }', media_type="application/json")

    @app.post("/v1/chat/completions")
    async def chat() -> StreamingResponse:
        async def chunks() -> AsyncIterator[bytes]:
            yield b'data: {"choices": []}\n\n'
            yield b"data: [DONE]\n\n"

        return StreamingResponse(chunks(), media_type="text/event-stream")

    @app.get("/v1/responses")
    async def listing(request: Request) -> str:
        return request.url.path

    @app.post("/tokens/v1/responses")
    async def unrelated() -> str:
        return "unrelated"

    return app


def client_for(app: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://model")


async def exchange(app: Any, events: list[dict[str, Any]], path: str = "/ng-rollout/1-0/v1/responses") -> list[Any]:
    """Play one request by hand: `events` are what `receive` returns, the result is what was sent."""
    sent: list[Any] = []
    pending = iter(events)

    async def receive() -> Any:
        return next(pending)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": []}
    await app(scope, receive, send)
    return sent


def wait_for_writes(middleware: CaptureMiddleware) -> None:
    middleware._writer.shutdown(wait=True)


@pytest.fixture
def store(tmp_path: Path) -> CaptureStore:
    return CaptureStore(tmp_path)


async def test_without_a_store_the_prefix_is_still_stripped():
    async with client_for(CaptureMiddleware(model_app())) as client:
        for prefix in ("", "/ng-rollout/1-0", "/ng-rollout/1-0/training-token-capture"):
            reply = await client.post(f"{prefix}/v1/responses", json={})
            assert (reply.status_code, reply.json()) == (200, {"b": 1, "a": "é"})


async def test_a_call_is_recorded_under_its_rollout_before_the_caller_has_the_answer(store: CaptureStore):
    async with client_for(CaptureMiddleware(model_app(), store=store, model_ref=MODEL_REF)) as client:
        reply = await client.post("/ng-rollout/1-0/v1/responses", json={"input": "hi"})
        (call,) = store.read("1-0")
    assert reply.content == b'{ "b": 1,\n "a": "\xc3\xa9" }'
    assert call["dialect"] == "responses"
    assert (call["model_ref"], call["status_code"], call["error_category"]) == (MODEL_REF, 200, None)
    assert (call["request"], call["response"]) == ({"input": "hi"}, {"b": 1, "a": "é"})
    assert call["started_at"] <= call["completed_at"]
    assert 0 <= call["latency_ttft_ms"] <= call["latency_ms"] == round(call["latency_ms"], 2)
    assert re.fullmatch("[0-9a-f]{32}", call["model_call_id"])
    assert call.keys().isdisjoint({"request_raw", "response_raw", "rollout_id"})
    assert not store.is_incomplete("1-0")


async def test_a_stream_is_recorded_as_its_text_and_as_the_object_it_describes(store: CaptureStore):
    async with client_for(CaptureMiddleware(model_app(), store=store)) as client:
        reply = await client.post("/ng-rollout/1-0/v1/chat/completions", json={"stream": True})
    (call,) = store.read("1-0")
    assert (call["dialect"], call["error_category"]) == ("chat", None)
    assert call["response_raw"] == reply.text == 'data: {"choices": []}\n\ndata: [DONE]\n\n'
    assert call["response"] == {"object": "chat.completion", "choices": []}


async def test_chunks_of_a_stream_are_not_held_back_until_its_end(store: CaptureStore):
    log: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        log.append("app goes on")
        await send({"type": "http.response.body", "body": b"last"})

    async def send(message: Any) -> None:
        log.append(message.get("body", b"start").decode())

    scope = {"type": "http", "method": "POST", "path": "/ng-rollout/1-0/v1/messages", "headers": []}
    await CaptureMiddleware(app, store=store)(scope, None, send)
    assert log == ["start", "first", "app goes on", "last"]
    assert store.read("1-0")[0]["response_raw"] == "firstlast"


@pytest.mark.parametrize(
    "path", ["/v1/responses", "/ng-rollout/1-0/tokens/v1/responses", "/ng-rollout/1-0/v1/responses/extra"]
)
async def test_requests_without_rollout_or_to_other_endpoints_are_not_recorded(store: CaptureStore, path: str):
    async with client_for(CaptureMiddleware(model_app(), store=store)) as client:
        await client.post(path, json={})
        assert (await client.get("/ng-rollout/1-0/v1/responses")).json() == "/v1/responses"
    assert list(store.root.iterdir()) == []


async def test_no_header_reaches_the_file(store: CaptureStore):
    async with client_for(CaptureMiddleware(model_app(), store=store)) as client:
        headers = {"authorization": "Bearer sk-secret-value", "x-api-key": "sk-secret-value"}
        await client.post("/ng-rollout/1-0/v1/responses", json={}, headers=headers)
    content = store.path_for("1-0").read_text()
    assert "sk-secret-value" not in content
    assert "authorization" not in content.lower()


async def test_a_body_that_is_not_json_is_kept_as_text(store: CaptureStore):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 502, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": b"<h1>\xff</h1>"})

    await exchange(CaptureMiddleware(app, store=store), [{"type": "http.request", "body": b"{oops"}])
    (call,) = store.read("1-0")
    assert (call["request"], call["response"], call["error_category"]) == (None, None, "upstream_error")
    assert (call["request_raw"], call["response_raw"]) == ("{oops", "<h1>�</h1>")


async def test_a_request_in_several_pieces_is_put_together(store: CaptureStore):
    pieces = [
        {"type": "http.request", "body": b'{"input"', "more_body": True},
        {"type": "http.request", "body": b":1}"},
    ]
    await exchange(CaptureMiddleware(model_app(), store=store), pieces)
    assert store.read("1-0")[0]["request"] == {"input": 1}


async def test_a_failing_answer_is_recorded_with_its_body(store: CaptureStore):
    async with client_for(CaptureMiddleware(model_app(), store=store)) as client:
        await client.post("/ng-rollout/1-0/v1/responses", json={"fail_with": 429})
    (call,) = store.read("1-0")
    assert (call["status_code"], call["error_category"], call["response"]) == (429, "rate_limit", {"error": "no"})


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (RuntimeError("the model fell over"), "exception"),
        (TimeoutError("too late"), "timeout"),
        (ConnectionResetError("gone"), "connection"),
        (aiohttp.ServerDisconnectedError(), "connection"),
    ],
)
async def test_an_app_that_raises_is_recorded_and_the_exception_goes_on(
    store: CaptureStore, error: Exception, category: str
):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        raise RuntimeError("wrapped") from error

    middleware = CaptureMiddleware(app, store=store)
    with pytest.raises(RuntimeError, match="wrapped"):
        await exchange(middleware, [{"type": "http.request", "body": b'{"input": 1}'}])
    wait_for_writes(middleware)
    (call,) = store.read("1-0")
    assert (call["error_category"], call["status_code"], call["request"]) == (category, None, {"input": 1})
    assert store.incomplete_reasons("1-0") == [f"{category}: call {call['model_call_id']} has no end"]


async def test_a_call_cancelled_in_the_middle_is_recorded_and_marked(store: CaptureStore):
    first_chunk_sent = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        first_chunk_sent.set()
        await asyncio.Event().wait()

    middleware = CaptureMiddleware(app, store=store)
    task = asyncio.create_task(exchange(middleware, []))
    await first_chunk_sent.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    wait_for_writes(middleware)
    (call,) = store.read("1-0")
    assert (call["error_category"], call["response_raw"]) == ("cancelled", "half")
    assert store.incomplete_reasons("1-0") == [f"cancelled: call {call['model_call_id']} has no end"]


async def test_a_disconnect_before_the_end_is_recorded_as_one(store: CaptureStore):
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        assert (await receive())["type"] == "http.disconnect"

    middleware = CaptureMiddleware(app, store=store)
    await exchange(middleware, [{"type": "http.request", "body": b"{}"}, {"type": "http.disconnect"}])
    wait_for_writes(middleware)
    assert [call["error_category"] for call in store.read("1-0")] == ["client_disconnected"]
    assert store.is_incomplete("1-0")


@contextlib.contextmanager
def held(middleware: CaptureMiddleware) -> Iterator[None]:
    """Keep the writing threads busy inside the block, so that writes wait in their queue."""
    busy, release = threading.Barrier(_WRITERS + 1), threading.Event()

    def hold() -> None:
        busy.wait(300)
        release.wait()

    for _ in range(_WRITERS):
        middleware._writer.submit(hold)
    try:
        busy.wait(300)
        yield
    finally:
        release.set()


async def test_a_request_cancelled_while_its_write_waits_in_the_queue_is_still_written_once(store: CaptureStore):
    middleware = CaptureMiddleware(model_app(), store=store)
    queued = asyncio.Event()
    start_writing = middleware._start_writing

    def start_and_tell(exchange: Any) -> Any:
        queued.set()
        return start_writing(exchange)

    middleware._start_writing = start_and_tell  # type: ignore[method-assign]
    with held(middleware):
        task = asyncio.create_task(exchange(middleware, [{"type": "http.request", "body": b"{}"}]))
        async with asyncio.timeout(300):
            await queued.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    wait_for_writes(middleware)
    assert [call["status_code"] for call in store.read("1-0")] == [200]


async def test_the_loop_goes_on_while_a_capture_is_written(store: CaptureStore):
    middleware = CaptureMiddleware(model_app(), store=store)
    with held(middleware):
        task = asyncio.create_task(exchange(middleware, [{"type": "http.request", "body": b"{}"}]))
        async with client_for(CaptureMiddleware(model_app())) as client:
            assert (await client.post("/v1/responses", json={})).status_code == 200
        assert not task.done()
    assert len(await task) == 2


async def test_a_disk_that_cannot_be_written_does_not_fail_the_call(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    store = CaptureStore(tmp_path / "folder")
    store.root.rmdir()
    store.root.touch()
    async with client_for(CaptureMiddleware(model_app(), store=store)) as client:
        reply = await client.post("/ng-rollout/1-0/v1/responses", json={})
    assert reply.status_code == 200
    assert "could not be captured" in caplog.text


async def test_tokens_go_to_the_sink_only_when_the_path_asks_for_them(tmp_path: Path):
    app = FastAPI()
    app.post("/v1/responses")(lambda: {"output": [{"type": "message", **TOKENS}]})
    sink = TokenCaptureStore(tmp_path)
    async with client_for(CaptureMiddleware(app, tokens=TokenDelivery(sink))) as client:
        await client.post("/ng-rollout/1-0/v1/responses", json={})
        await client.post("/ng-rollout/2-0/training-token-capture/v1/responses", json={})
    assert (await sink.freeze("1-0")).entries == []
    snapshot = await sink.freeze("2-0")
    (entry,) = snapshot.entries
    assert (snapshot.complete, entry.rollout_id) == (True, "2-0")
    assert entry.model_call_id
    assert entry.model_dump(include=set(TOKENS)) == TOKENS


async def test_without_a_sink_the_tokens_stay_where_they_are():
    contexts: list[Any] = []
    app = FastAPI()
    app.post("/v1/responses")(lambda: contexts.append(current_capture_context()))
    async with client_for(CaptureMiddleware(app, tokens=TokenDelivery())) as client:
        reply = await client.post("/ng-rollout/1-0/training-token-capture/v1/responses", json={})
    assert (reply.status_code, contexts) == (200, [None])


async def test_the_tokens_of_a_cancelled_call_are_marked_by_the_time_the_server_is_down(tmp_path: Path):
    started = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    tokens = TokenDelivery(TokenCaptureStore(tmp_path))
    path = "/ng-rollout/1-0/training-token-capture/v1/responses"
    call = asyncio.create_task(exchange(CaptureMiddleware(app, tokens=tokens), [], path))
    await started.wait()
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call
    await tokens.close()
    (reason,) = (await TokenCaptureStore(tmp_path).freeze("1-0")).incomplete_reasons
    assert "cancelled" in reason


@pytest.mark.parametrize(("body", "reason"), [({}, "no token ids"), ({"fail_with": 500}, "upstream_error")])
async def test_an_answer_without_tokens_makes_the_rollout_incomplete(tmp_path: Path, body: Any, reason: str):
    sink = TokenCaptureStore(tmp_path)
    async with client_for(CaptureMiddleware(model_app(), tokens=TokenDelivery(sink))) as client:
        await client.post("/ng-rollout/1-0/training-token-capture/v1/responses", json=body)
    (noted,) = (await sink.freeze("1-0")).incomplete_reasons
    assert reason in noted


async def test_a_sink_that_raises_does_not_fail_the_call(monkeypatch, caplog: pytest.LogCaptureFixture):
    class Broken(TokenCaptureStore):
        async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None:
            raise KeyError(rollout_id)

        begin_call = explain_incomplete = mark_incomplete  # type: ignore[assignment]

    monkeypatch.setattr(delivery, "MARK_DELAYS_S", (0,))
    async with client_for(CaptureMiddleware(model_app(), tokens=TokenDelivery(Broken("unused")))) as client:
        reply = await client.post("/ng-rollout/1-0/training-token-capture/v1/responses", json={})
    assert reply.status_code == 200
    assert "token sink failed" in caplog.text


@contextlib.contextmanager
def served(app: Any) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    started = threading.Event()
    startup = server.startup

    async def startup_and_tell(sockets: Any = None) -> None:
        await startup(sockets)
        started.set()

    server.startup = startup_and_tell  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert started.wait(300)
        host, port = server.servers[0].sockets[0].getsockname()
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        thread.join(300)


async def test_a_client_that_hangs_up_on_a_real_server_leaves_a_marked_capture(store: CaptureStore):
    written = threading.Event()

    class TellingStore(CaptureStore):
        def mark_incomplete(self, *args: Any, **kwargs: Any) -> None:
            super().mark_incomplete(*args, **kwargs)
            written.set()

    app = FastAPI()

    @app.post("/v1/responses")
    async def endless() -> StreamingResponse:
        async def chunks() -> AsyncIterator[bytes]:
            while True:
                yield b"data: {}\n\n"
                await asyncio.sleep(0.01)

        return StreamingResponse(chunks(), media_type="text/event-stream")

    with served(CaptureMiddleware(app, store=TellingStore(store.root))) as url:
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{url}/ng-rollout/1-0/v1/responses", json={"stream": True}) as reply:
                await reply.content.readline()
        assert await asyncio.to_thread(written.wait, 30)
    (call,) = store.read("1-0")
    assert (call["request"], call["error_category"]) == ({"stream": True}, "client_disconnected")
    assert call["response_raw"].startswith("data: {}\n\n")


# --- one exchange -----------------------------------------------------------------------------------------------------


COMPLETED = b'data: {"type": "response.completed", "response": {"id": "r"}}\n\n'
INCOMPLETE = b'data: {"type": "response.incomplete", "response": {"id": "r"}}\n\n'
FAILED = b'data: {"type": "response.failed", "response": {"id": "r"}}\n\n'
CREATED = b'data: {"type": "response.created", "response": {"id": "r"}}\n\n'


def kept(status: int | None, body: bytes, *, stream: bool = False, request: bytes = b"{}") -> dict[str, Any]:
    exchange = CapturedExchange("0-0", "responses", False)
    exchange.note_received({"type": "http.request", "body": request})
    if status is not None:
        kind = b"text/event-stream; charset=utf-8" if stream else b"application/json"
        exchange.note_sent(
            {"type": "http.response.start", "status": status, "headers": [(b"Content-Type", kind), (b"x-key", b"sk-1")]}
        )
        assert exchange.note_sent({"type": "http.response.body", "body": body})
    exchange.end()
    return exchange.build_record({"type": "responses_api_models", "name": "m"})


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (200, None),
        (400, "client_error"),
        (401, "auth"),
        (403, "auth"),
        (404, "not_found"),
        (408, "timeout"),
        (422, "client_error"),
        (429, "rate_limit"),
        (500, "upstream_error"),
        (503, "upstream_error"),
        (504, "timeout"),
        (None, "no_response"),
    ],
)
def test_a_status_has_a_category(status: int | None, category: str | None):
    assert kept(status, b"{}")["error_category"] == category


@pytest.mark.parametrize(
    ("body", "category"),
    [
        (CREATED + COMPLETED, None),
        (CREATED + INCOMPLETE, "incomplete"),
        (CREATED + FAILED, "upstream_error"),
        (CREATED, "stream_truncated"),
        (b"", "stream_truncated"),
    ],
)
def test_a_stream_has_a_category_although_its_status_is_200(body: bytes, category: str | None):
    one = kept(200, body, stream=True)
    assert one["error_category"] == category
    assert one["response"] == ({"id": "r"} if body else None)
    assert one.get("response_raw", "") == body.decode()


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'"text"', b"\xff"])
def test_a_success_that_is_no_object_is_a_parse_error_with_its_text(body: bytes):
    one = kept(200, body)
    assert (one["response"], one["error_category"]) == (None, "capture_parse_error")
    assert one["response_raw"] == body.decode(errors="replace")


def test_a_request_that_is_no_object_is_kept_as_its_text():
    assert kept(422, b"{}", request=b"[1]")["request_raw"] == "[1]"
    assert "request_raw" not in kept(200, b"{}", request=b"")


def test_nothing_of_the_headers_is_kept():
    assert b"sk-1" not in orjson.dumps(kept(200, b"{}"))


def test_an_exchange_has_these_fields():
    assert list(kept(200, b"{}")) == [
        "model_call_id",
        "dialect",
        "model_ref",
        "started_at",
        "completed_at",
        "latency_ms",
        "latency_ttft_ms",
        "status_code",
        "error_category",
        "request",
        "response",
    ]
