# SPDX-License-Identifier: Apache-2.0
"""Every call ends: by an answer, a deadline, or after a bounded number of attempts."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from nemo_gym._transport import http_calls as http
from nemo_gym._transport.call_errors import ServerDeadlineExceeded, ServerUnreachable
from nemo_gym._transport.retries import RetryPolicy


class Misbehaving:
    """A TCP server that follows a script: one entry a connection."""

    def __init__(self, *script: str) -> None:
        self.script, self.seen = list(script), 0
        self.writers = list[asyncio.StreamWriter]()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        if b"content-length" in head.lower():
            await reader.read(1)
        self.seen += 1
        behaviour = self.script.pop(0) if self.script else "answer"
        if behaviour == "answer":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
            await writer.drain()
        elif behaviour == "hang":
            await asyncio.Event().wait()
        writer.close()


@asynccontextmanager
async def serving(*script: str):
    peer = Misbehaving(*script)
    server = await asyncio.start_server(peer.handle, "127.0.0.1", 0)
    try:
        yield peer, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        for writer in peer.writers:
            writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def session(**settings):
    made = http.build_session(http.SessionSettings(**settings))
    try:
        yield made
    finally:
        await made.close()


async def test_a_post_that_may_have_run_is_not_repeated():
    async with serving("disconnect") as (peer, url), session() as client:
        with pytest.raises(ServerUnreachable, match="1 attempt"):
            await http.send(client, "POST", url, policy=RetryPolicy(), data=b"x")
        assert peer.seen == 1


async def test_a_post_that_is_said_to_be_harmless_is_repeated_a_bounded_number_of_times():
    async with serving("disconnect", "disconnect") as (peer, url), session() as client:
        reply = await http.send(client, "POST", url, policy=RetryPolicy(), data=b"x", idempotent=True)
        assert (await reply.read(), peer.seen) == (b"ok", 3)
    async with serving(*["disconnect"] * 9) as (peer, url), session() as client:
        with pytest.raises(ServerUnreachable, match="3 attempts"):
            await http.send(client, "POST", url, policy=RetryPolicy(), data=b"x", idempotent=True)
        assert peer.seen == 3


async def test_a_get_is_repeated():
    async with serving("disconnect") as (peer, url), session() as client:
        await http.send(client, "GET", url, policy=RetryPolicy())
        # aiohttp repeats an idempotent call once by itself when a kept connection broke.
        assert peer.seen >= 2


async def test_a_connection_that_is_not_made_in_time_is_tried_again_and_is_no_deadline_of_the_call():
    with socket.socket() as busy, socket.socket() as first, socket.socket() as second:
        busy.bind(("127.0.0.1", 0))
        busy.listen(0)  # takes one connection that nobody accepts, and lets the others wait
        first.connect(busy.getsockname())
        second.setblocking(False)
        second.connect_ex(busy.getsockname())
        async with session(connect_timeout_s=0.2) as client:
            url = f"http://127.0.0.1:{busy.getsockname()[1]}/"
            with pytest.raises(ServerUnreachable, match="3 attempts") as caught:
                await http.send(client, "POST", url, policy=RetryPolicy(unsent=3, first_pause_s=0.0))
    assert caught.value.trouble == "unreachable"
    assert "no connection in time" in str(caught.value)


async def test_a_refused_connection_is_tried_a_bounded_number_of_times(unused_tcp_port):
    policy = RetryPolicy(unsent=4, first_pause_s=0.001)
    async with session() as client:
        with pytest.raises(ServerUnreachable, match="4 attempts") as caught:
            await http.send(client, "POST", f"http://127.0.0.1:{unused_tcp_port}/", policy=policy, data=b"x")
    assert str(unused_tcp_port) in str(caught.value)
    assert "hint" in str(caught.value)


async def test_a_server_that_never_answers_meets_the_deadline():
    async with serving("hang") as (_, url), session(total_timeout_s=0.1) as client:
        with pytest.raises(ServerDeadlineExceeded, match=r"0\.1 s"):
            await http.send(client, "POST", url, policy=RetryPolicy(), data=b"x")


@pytest.mark.parametrize(("total_s", "bounded_s", "by_session"), [(60.0, 60.0, False), (0.1, 60.0, True)])
async def test_the_session_leaves_a_call_to_a_caller_who_ends_it_earlier(total_s, bounded_s, by_session):
    async with serving("hang") as (_, url), session(total_timeout_s=total_s) as client:
        sent = http.send(client, "POST", url, policy=RetryPolicy(), bounded_s=bounded_s, data=b"x")
        if by_session:
            with pytest.raises(ServerDeadlineExceeded, match=r"0\.1 s"):
                await sent
            return
        task = asyncio.ensure_future(sent)
        await asyncio.sleep(0.1)
        assert not [timer for timer in client_timers() if timer > 30], "nobody but the caller watches the clock"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def client_timers() -> list[float]:
    """In how many seconds the running event loop has something to do."""
    loop = asyncio.get_running_loop()
    return [timer.when() - loop.time() for timer in loop._scheduled if not timer.cancelled()]


class Inner(BaseModel):
    a: int = 1
    b: str = "unset"


@given(st.integers(), st.text())
def test_models_are_sent_without_what_was_never_set(number, text):
    assert json.loads(http.encode_json(Inner(a=number))) == {"a": number}
    assert json.loads(http.encode_json({"inner": [Inner(b=text)]})) == {"inner": [{"b": text}]}
