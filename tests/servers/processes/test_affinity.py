# SPDX-License-Identifier: Apache-2.0
"""Requests find the worker that holds their session, and neither side can tell that they were carried."""

import asyncio
import functools
import inspect
import socket
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import uvloop
from hypothesis import given, settings, strategies as st

from nemo_gym._servers.mcp.session import Grant, GrantSigner
from nemo_gym._servers.processes.affinity import Peers, SessionAffinity
from nemo_gym.mcp_auto_exposure import _make_signer, session_by_header

HERE, OWNER = 0, 1
OWNERS = b"a session of the owner"
assert Peers(HERE, ("", "")).owner(OWNERS.decode()) == OWNER


def on_both_loops(test: Callable) -> Callable:
    """Run `test` on the loop that servers use and on Python's own."""

    @functools.wraps(test)
    def run_test(run, **fixtures):
        run(test(**fixtures))

    own = inspect.signature(test)
    loop = inspect.Parameter("run", inspect.Parameter.KEYWORD_ONLY)
    run_test.__signature__ = own.replace(parameters=[*own.parameters.values(), loop])
    return pytest.mark.parametrize("run", [uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])(run_test)


def with_lifespan(handle: Callable) -> Callable:
    """An app whose requests are answered by `handle`."""

    async def app(scope, receive, send):
        if scope["type"] == "http":
            return await handle(scope, receive, send)
        assert (await receive())["type"] == "lifespan.startup"
        scope["state"]["started"] = "yes"
        await send({"type": "lifespan.startup.complete"})
        assert (await receive())["type"] == "lifespan.shutdown"
        return await send({"type": "lifespan.shutdown.complete"})

    return app


async def never(scope, receive, send):
    pytest.fail("answered by the wrong worker")


@contextmanager
def built_workers(owners_app: Callable, app_here: Callable = never) -> Iterator[list[SessionAffinity]]:
    """Two workers that do not run yet; sessions are named by the header `x-session`."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        paths = tuple(str(Path(folder) / f"{number}.sock") for number in (HERE, OWNER))
        workers = []
        for number, app in ((HERE, app_here), (OWNER, owners_app)):
            door = stack.enter_context(socket.socket(socket.AF_UNIX))
            door.bind(paths[number])
            door.listen(1)
            read = {b"x-session": bytes.decode}
            workers.append(SessionAffinity(with_lifespan(app), Peers(number, paths), door, read))
        yield workers


@asynccontextmanager
async def two_workers(owners_app: Callable, app_here: Callable = never) -> AsyncIterator[SessionAffinity]:
    """The worker that clients reach, with the owner of the session running beside it."""
    with built_workers(owners_app, app_here) as (here, owner):
        async with alive(here), alive(owner):
            yield here


@asynccontextmanager
async def alive(app: Callable) -> AsyncIterator[None]:
    to_app, from_app = asyncio.Queue(), asyncio.Queue()
    task = asyncio.create_task(app({"type": "lifespan", "state": {}}, to_app.get, from_app.put))
    to_app.put_nowait({"type": "lifespan.startup"})
    assert (await from_app.get())["type"] == "lifespan.startup.complete"
    yield
    to_app.put_nowait({"type": "lifespan.shutdown"})
    await task


class Call:
    """A request of a client, message by message."""

    def __init__(self, app: Callable, **scope: Any) -> None:
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/päth",
            "raw_path": b"/p%C3%A4th",
            "query_string": b"a=1&a=2",
            "root_path": "",
            "headers": [(b"x-session", OWNERS), (b"x-twice", b"1"), (b"x-twice", b"\xff")],
            "client": ("192.0.2.7", 1234),
            "server": ("127.0.0.1", 80),
            "state": {},
            **scope,
        }
        self.said, self.answered = asyncio.Queue(), asyncio.Queue()
        self.task = asyncio.create_task(app(self.scope, self.said.get, self.answered.put))

    def say(self, body: bytes = b"", more: bool = False) -> "Call":
        self.said.put_nowait({"type": "http.request", "body": body, "more_body": more})
        return self

    def hang_up(self) -> None:
        self.said.put_nowait({"type": "http.disconnect"})

    async def reply(self) -> tuple[dict, bytes]:
        """The start of the reply and its whole body."""
        await self.task
        start, *rest = [self.answered.get_nowait() for _ in range(self.answered.qsize())]
        assert [message.get("more_body", False) for message in rest] == [True] * (len(rest) - 1) + [False]
        return start, b"".join(message["body"] for message in rest)


async def answer(send: Callable, body: bytes = b"", status: int = 200, headers: Any = ()) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def body_of(receive: Callable) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        assert message["type"] == "http.request"
        parts.append(message["body"])
        more = message["more_body"]
    return b"".join(parts)


async def echo(scope, receive, send):
    await answer(send, await body_of(receive))


# --- whose session it is ----------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 9), data=st.data())
def test_every_worker_names_the_same_owner_and_gives_new_sessions_its_own(count, data):
    paths = tuple(map(str, range(count)))
    session_id = data.draw(st.text(st.characters(exclude_categories=["Cs"])))
    assert len({Peers(index, paths).owner(session_id) for index in range(count)}) == 1
    index = data.draw(st.integers(0, count - 1))
    peers = Peers(index, paths)
    assert peers.owner(peers.new_session_id()) == index
    assert peers.new_session_id() != peers.new_session_id()


def test_sessions_are_spread_evenly():
    owners = Counter(Peers(0, ("", "", "")).owner(str(number)) for number in range(3000))
    assert min(owners.values()) > 900


@pytest.mark.parametrize("headers", [[], [(b"x-session", b"mine!")], [(b"x-other", OWNERS)]])
async def test_a_request_without_a_session_or_with_an_own_one_is_answered_here(headers):
    assert Peers(HERE, ("", "")).owner("mine!") == HERE
    async with two_workers(never, app_here=echo) as worker:
        assert (await Call(worker, headers=headers).say(b"hello").reply())[1] == b"hello"


async def test_the_first_header_that_names_a_session_decides():
    read = {b"x-token": lambda value: value.decode() if value == OWNERS else None, b"x-session": bytes.decode}
    worker = SessionAffinity(never, Peers(HERE, ("", "")), socket.socket(), read)
    worker._listener.close()
    for token, owner in ((OWNERS, OWNER), (b"forged", HERE)):
        assert worker._find_owner({"headers": [(b"x-session", b"mine!"), (b"x-token", token)]}) == owner


def test_an_mcp_request_names_its_session_by_its_token():
    server = SimpleNamespace(get_session_middleware_key=lambda: "key")
    ((header, read),) = session_by_header(server).items()
    assert header == b"x-nemo-gym-session-token"
    assert read(_make_signer(server).sign(Grant("the session", None)).encode()) == "the session"
    assert read(GrantSigner("other").sign(Grant("the session", None)).encode()) is None


async def test_headers_that_name_no_session_are_not_remembered():
    worker = SessionAffinity(never, Peers(HERE, ("", "")), socket.socket(), {b"cookie": lambda value: None})
    worker._listener.close()
    assert worker._find_owner({"headers": [(b"cookie", b"forged")]}) is None
    assert worker._known == {}


# --- carried unchanged ------------------------------------------------------------------------------------------------


@on_both_loops
async def test_the_owner_sees_the_request_as_it_came_and_the_state_of_its_own_app():
    async def look(scope, receive, send):
        seen.append(scope)
        await echo(scope, receive, send)

    seen = []
    async with two_workers(look) as worker:
        call = Call(worker).say(b"body")
        assert (await call.reply())[1] == b"body"
    assert seen == [{**call.scope, "state": {"started": "yes"}}]


@on_both_loops
async def test_the_client_gets_status_headers_and_body_as_the_owner_sent_them():
    headers = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"x-odd", b"\xe9"), (b"date", b"never")]

    async def owners(scope, receive, send):
        await answer(send, b"\x00\xff", 418, iter(headers))

    async with two_workers(owners) as worker:
        start, body = await Call(worker).say().reply()
    assert start == {"type": "http.response.start", "status": 418, "headers": headers}
    assert body == b"\x00\xff"


@on_both_loops
async def test_bodies_of_any_size_arrive_whole_in_both_directions():
    async with two_workers(echo) as worker:
        for size in (0, 1, 1 << 20, (1 << 20) + 1, 5_000_000):
            body = bytes(range(256)) * (size // 256) + bytes(size % 256)
            assert (await Call(worker).say(body[:7], more=True).say(body[7:]).reply())[1] == body


@on_both_loops
async def test_request_and_reply_stream_side_by_side():
    async def talk(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            await send({"type": "http.response.body", "body": message["body"].upper(), "more_body": more})

    async with two_workers(talk) as worker:
        call = Call(worker)
        assert (await call.answered.get())["type"] == "http.response.start"
        for word in (b"one", b"two"):
            call.say(word, more=True)
            assert (await call.answered.get())["body"] == word.upper()
        call.say(b"end")
        assert await call.answered.get() == {"type": "http.response.body", "body": b"END", "more_body": False}
        await call.task


@on_both_loops
async def test_a_client_that_hangs_up_is_noticed_by_the_owner():
    async def wait(scope, receive, send):
        await body_of(receive)
        heard.set_result(await receive())
        await answer(send)

    heard = asyncio.get_running_loop().create_future()
    async with two_workers(wait) as worker:
        call = Call(worker).say(b"body")
        call.hang_up()
        assert await heard == {"type": "http.disconnect"}
        await call.task


@on_both_loops
async def test_a_slow_reader_slows_the_owner_down_instead_of_filling_memory():
    sent = 0

    async def pour(scope, receive, send):
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(200):
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
            sent += 1
        await send({"type": "http.response.body", "body": b""})

    async def slow_send(message):
        await go_on.wait()
        received.append(len(message.get("body", b"")))

    go_on, received = asyncio.Event(), []
    async with two_workers(pour) as worker:
        scope = Call(echo).say().scope
        task = asyncio.create_task(worker(scope, asyncio.Queue().get, slow_send))
        before = -1
        while sent != before:  # until the owner stands still
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 50
        go_on.set()
        await task
    assert sum(received) == 200 << 20


# --- connections ------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_a_connection_is_used_again_even_if_the_owner_did_not_read_the_request():
    async def deaf(scope, receive, send):
        await answer(send, orjson.dumps(scope["path"]))

    async with two_workers(deaf) as worker:
        for number in range(3):
            call = Call(worker, path=f"/{number}").say(b"x" * 10, more=True).say(b"y" * 10)
            assert (await call.reply())[1] == b'"/%d"' % number
        assert len(worker._forwarders[OWNER].idle) == 1


@on_both_loops
async def test_a_reply_to_half_a_request_ends_the_exchange():
    async def impatient(scope, receive, send):
        await answer(send, b"enough", 413)

    async with two_workers(impatient) as worker:
        start, body = await Call(worker).say(b"half", more=True).reply()
        assert (start["status"], body) == (413, b"enough")
        assert worker._forwarders[OWNER].idle == []


@on_both_loops
async def test_work_after_the_reply_does_not_hold_up_the_next_request():
    async def busy(scope, receive, send):
        await echo(scope, receive, send)
        if await receive() == {"type": "http.disconnect"}:
            await asyncio.Event().wait()

    async with two_workers(busy) as worker:
        for word in (b"one", b"two", b"three"):
            assert (await Call(worker).say(word).reply())[1] == word
        assert len(worker._forwarders[OWNER].idle) == 1


@on_both_loops
async def test_many_at_once_do_not_mix():
    async def shuffled(scope, receive, send):
        await asyncio.sleep(hash(scope["path"]) % 5 / 1000)
        await echo(scope, receive, send)

    async with two_workers(shuffled) as worker:
        calls = [Call(worker, path=f"/{number}").say(b"%d" % number) for number in range(200)]
        assert [(await call.reply())[1] for call in calls] == [b"%d" % number for number in range(200)]


@on_both_loops
async def test_any_number_of_requests_waits_for_an_owner_that_is_still_starting():
    with built_workers(echo) as (here, owner):
        async with alive(here):
            calls = [Call(here).say(b"%d" % number) for number in range(20)]
            for _ in range(10):
                await asyncio.sleep(0)
            async with alive(owner):
                assert [(await call.reply())[1] for call in calls] == [b"%d" % number for number in range(20)]


# --- failures ---------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_an_owner_whose_app_fails_before_its_reply_gives_a_502_that_names_it(caplog):
    async def fails(scope, receive, send):
        raise RuntimeError("a bug")

    async with two_workers(fails) as worker:
        start, body = await Call(worker).say().reply()
    assert start["status"] == 502
    assert "worker 1" in orjson.loads(body)
    assert "a bug" in caplog.text


@on_both_loops
async def test_an_owner_that_fails_within_its_reply_breaks_the_connection_of_the_client(caplog):
    async def fails(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("a bug")

    async with two_workers(fails) as worker:
        with pytest.raises(ConnectionError, match="worker 1"):
            await Call(worker).say().task


@on_both_loops
async def test_an_owner_that_is_gone_gives_a_503():
    worker = SessionAffinity(
        never, Peers(HERE, ("/nonexistent/0", "/nonexistent/1")), socket.socket(), {b"x-session": bytes.decode}
    )
    worker._listener.close()
    start, body = await Call(worker).say().reply()
    assert start["status"] == 503
    assert "worker 1" in orjson.loads(body)


@on_both_loops
async def test_a_request_that_is_cancelled_here_ends_as_a_disconnect_at_the_owner():
    async def wait(scope, receive, send):
        await body_of(receive)
        began.set()
        heard.set_result(await receive())

    began, heard = asyncio.Event(), asyncio.get_running_loop().create_future()
    async with two_workers(wait) as worker:
        call = Call(worker).say()
        await began.wait()
        call.task.cancel()
        with suppress(asyncio.CancelledError):
            await call.task
        assert await heard == {"type": "http.disconnect"}
