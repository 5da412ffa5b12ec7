# SPDX-License-Identifier: Apache-2.0
"""The small client gives what aiohttp gives, keeps to its limits, and never takes one reply for another."""

import asyncio
import gzip
import socket
import ssl
import subprocess
import zlib
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise

import aiohttp
import pytest
from hypothesis import given, strategies as st

from nemo_gym._transport import http_calls as http
from nemo_gym._transport.call_errors import ReplyTooLarge, ServerDeadlineExceeded, ServerUnreachable
from nemo_gym._transport.http1 import find_target, parse_url
from nemo_gym._transport.http1_connection import Connection
from nemo_gym._transport.retries import RetryPolicy
from nemo_gym._transport.whole_response import WholeResponse

SETTINGS = http.SessionSettings(keepalive_timeout_s=5.0)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """A server that answers each request with the next of `answers`, and counts connections."""

    def __init__(self, *answers: bytes | Answer) -> None:
        self.answers, self.requests, self.connections = [*answers], list[bytes](), 0
        self.most_at_once = self._now = 0
        self.has_request, self.writers = asyncio.Event(), list[asyncio.StreamWriter]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                self.requests.append(head + await reader.readexactly(int(size or b"0")))
                self.has_request.set()
                self._now += 1
                self.most_at_once = max(self.most_at_once, self._now)
                answer = self.answers.pop(0) if self.answers else OK
                if isinstance(answer, bytes):
                    writer.write(answer)
                    await writer.drain()
                    if b"connection: close" in answer.lower() or answer == b"":
                        return
                else:
                    await answer(self.requests[-1], writer)
                self._now -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def listening(*answers: bytes | Answer, serve=None, **tls):
    peer = Peer(*answers)

    async def serve_and_remember(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer.writers.append(writer)
        await (serve or peer.serve)(reader, writer)

    server = await asyncio.start_server(serve_and_remember, "127.0.0.1", 0, **tls)
    try:
        yield peer, f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        for writer in peer.writers:
            writer.transport.abort()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@asynccontextmanager
async def calling(*answers: bytes | Answer, settings: http.SessionSettings = SETTINGS, limit: int = 2**20):
    client = http.build_model_client(settings, limit)

    async def call(body: bytes = b"{}", method: str = "POST", **headers: str) -> WholeResponse:
        return await client.call(method, url, parse_url(url), headers, body)

    async with listening(*answers) as (peer, base_url):
        url = f"{base_url}v1/x"
        try:
            yield peer, call
        finally:
            client.close()
            await asyncio.sleep(0)


def chunked(*parts: bytes, trailer: bytes = b"") -> bytes:
    framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + framed + b"0\r\n" + trailer + b"\r\n"


async def test_a_request_says_what_a_server_needs_to_know_and_carries_its_body_and_headers():
    async with calling() as (peer, call):
        reply = await call(b'{"a": 1}', Authorization="Bearer k")
        await call(b"", method="GET")
    head, _, body = peer.requests[0].partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    assert (reply.status, await reply.read(), reply.ok, reply.method) == (200, b"ok", True, "POST")
    assert (first, body) == ("POST /v1/x HTTP/1.1", b'{"a": 1}')
    assert {"Content-Length: 8", "Authorization: Bearer k", "Accept: */*", "User-Agent: nemo-gym"} <= set(lines)
    assert b"Content-Length" not in peer.requests[1]


async def test_calls_in_a_row_share_a_connection_and_calls_at_once_do_not():
    async with calling() as (peer, call):
        for _ in range(3):
            await call()
        assert peer.connections == 1
        await asyncio.gather(call(), call(), call())
        assert peer.connections == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok",
    ],
    ids=["said so", "HTTP/1.0", "a body until the end"],
)
async def test_a_connection_that_the_server_closes_is_not_used_again(answer):
    async with calling(answer, answer) as (peer, call):
        assert [await (await call()).read() for _ in range(2)] == [b"ok", b"ok"]
        assert peer.connections == 2


async def test_an_idle_connection_is_closed_in_time_and_not_used_after_that():
    async with calling(settings=replace(SETTINGS, keepalive_timeout_s=0.05)) as (peer, call):
        await call()
        await asyncio.sleep(0.15)
        await call()
        assert peer.connections == 2


async def test_interim_answers_are_passed_over():
    hint = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    async with calling(b"HTTP/1.1 100 Continue\r\n\r\n" + hint + OK) as (peer, call):
        reply = await call()
        assert (reply.status, await reply.read(), "link" in reply.headers) == (200, b"ok", False)
        await call()
        assert peer.connections == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", aiohttp.ServerDisconnectedError),
        (b"SSH-2.0-OpenSSH_9.6\r\n", aiohttp.ClientResponseError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhal", aiohttp.ClientPayloadError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nok", aiohttp.ClientResponseError),
        (OK + OK, aiohttp.ClientResponseError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok", aiohttp.ClientResponseError),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n2\r\nok\r\n",
            aiohttp.ClientPayloadError,
        ),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nok\r\n", aiohttp.ClientPayloadError),
        (b"HTTP/1.1 101 Now\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", aiohttp.ClientResponseError),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, aiohttp.ClientResponseError),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 2\r\n\r\nok", aiohttp.ClientResponseError),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nok", aiohttp.ClientPayloadError),
    ],
    ids=[
        *("hangs up", "no HTTP", "half a body", "too short a length", "two replies", "two lengths", "no last chunk"),
        *("no chunk", "another protocol", "endless headers", "unknown coding", "broken coding"),
    ],
)
async def test_a_broken_reply_is_an_error_of_aiohttp_and_its_connection_is_gone(answer, error):
    async with calling(answer) as (peer, call):
        with pytest.raises(error):
            await call()
        assert await (await call()).read() == b"ok"
        assert peer.connections == 2


async def test_a_reset_is_a_broken_connection():
    async def reset(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async with calling(reset) as (_, call):
        with pytest.raises(aiohttp.ClientConnectionError):
            await call()


async def test_bytes_that_nobody_asked_for_end_a_connection_before_the_next_call():
    """Else a late reply would be taken for the answer to another question."""

    is_added = asyncio.Event()

    async def answer_and_add(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await asyncio.sleep(0.02)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong")
        is_added.set()

    async with calling(answer_and_add) as (peer, call):
        await call()
        await is_added.wait()
        await asyncio.sleep(0.05)
        assert await (await call()).read() == b"ok"
        assert peer.connections == 2


async def test_a_server_that_closes_an_idle_connection_costs_no_call():
    has_left = asyncio.Event()

    async def answer_and_leave(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await asyncio.sleep(0.02)
        writer.close()
        await writer.wait_closed()
        has_left.set()

    async with calling(answer_and_leave) as (_, call):
        await call()
        await has_left.wait()
        await asyncio.sleep(0.05)
        assert (await call()).ok


async def test_a_call_that_is_cancelled_leaves_neither_its_connection_nor_its_turn():
    async def hang(request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with calling(hang, settings=replace(SETTINGS, connector_limit_per_host=1)) as (peer, call):
        task = asyncio.create_task(call())
        await peer.has_request.wait()
        waiting = asyncio.create_task(call())
        await asyncio.sleep(0)
        waiting.cancel()
        task.cancel()
        assert (await call()).ok
        assert peer.connections == 2


@pytest.mark.parametrize("limits", [{"connector_limit_per_host": 2}, {"connector_limit": 2}])
async def test_more_calls_than_connections_wait_for_their_turn(limits):
    async def answer_late(request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.005)
        writer.write(OK)

    async with calling(*[answer_late] * 10, settings=replace(SETTINGS, **limits)) as (peer, call):
        replies = await asyncio.gather(*(call() for _ in range(10)))
        assert [reply.status for reply in replies] == [200] * 10
        assert (peer.most_at_once, peer.connections) == (2, 2)


async def test_a_turn_that_one_server_frees_can_go_to_another():
    async def answer_late(request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.01)
        writer.write(OK)

    client = http.build_model_client(replace(SETTINGS, connector_limit=1), 100)
    async with listening(answer_late) as (_, first), listening() as (_, second):
        calls = (client.call("GET", url, parse_url(url), {}, b"") for url in (first, second))
        assert [reply.status for reply in await asyncio.gather(*calls)] == [200, 200]
        client.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 101\r\n\r\n",
        chunked(b"x" * 60, b"x" * 60),
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"x" * 101,
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n" + gzip.compress(b"x" * 101),
    ],
    ids=["by its length", "in chunks", "until the end", "a bomb"],
)
async def test_a_reply_above_the_limit_is_given_up(answer):
    async with calling(answer, limit=100) as (_, call):
        with pytest.raises(ReplyTooLarge, match="max_model_reply_bytes"):
            await call()


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        (b"gzip", gzip.compress(b"content")),
        (b"gzip", gzip.compress(b"con") + gzip.compress(b"tent")),
        (b"deflate", zlib.compress(b"content")),
        (b"deflate", zlib.compress(b"content", wbits=-zlib.MAX_WBITS)),
        (b"identity", b"content"),
    ],
    # Compressed bytes hold the time, so that processes that run these tests together would each call them otherwise.
    ids=["gzip", "gzip in two", "zlib", "bare deflate", "identity"],
)
async def test_a_compressed_reply_is_read(coding, body):
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: %b\r\ncontent-length: %d\r\n\r\n" % (coding, len(body))
    async with calling(head + body) as (_, call):
        assert await (await call()).read() == b"content"


async def test_a_large_request_and_its_reply_arrive_whole():
    body = b"0123456789" * 200_000

    async def echo(request: bytes, writer: asyncio.StreamWriter) -> None:
        content = request.partition(b"\r\n\r\n")[2]
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(content) + content)

    async with calling(echo, limit=2**22) as (_, call):
        assert await (await call(body)).read() == body


async def test_an_answer_before_the_end_of_the_request_is_heard_and_the_connection_closed():
    client = http.build_model_client(SETTINGS, 100)

    async def refuse_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too large\r\ncontent-length: 0\r\n\r\n")
        await reader.read()  # which ends with the connection
        writer.close()

    async with listening(serve=refuse_early) as (_, url):
        reply = await client.call("POST", url, parse_url(url), {}, b"x" * 20_000_000)
        await asyncio.sleep(0.01)
        assert (reply.status, client._open) == (413, set())


async def test_a_header_cannot_begin_another():
    async with calling() as (peer, call):
        for value in ("a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b"):
            with pytest.raises(ValueError, match="line break"):
                await call(Authorization=value)
        assert not peer.requests


async def test_the_reply_behaves_as_one_of_aiohttp():
    head = (
        b"HTTP/1.1 429 Slow\r\nContent-Type: application/json; charset=utf-8\r\nRetry-After: 7\r\nSet-Cookie: a=b\r\n"
    )
    async with calling(head + b'content-length: 7\r\n\r\n{"a":1}') as (_, call):
        reply = await call()
    assert (reply.headers["retry-after"], reply.content_type, reply.reason) == (
        "7",
        "application/json",
        "Too Many Requests",
    )
    assert (await reply.json(), await reply.text(), reply.cookies["a"].value) == ({"a": 1}, '{"a":1}', "b")
    with pytest.raises(aiohttp.ClientResponseError):
        reply.raise_for_status()


# --- the parts of a reply, however the network cuts them --------------------------------------------------------------


class Wire:
    """A transport of which nothing is sent."""

    def write(self, data: bytes) -> None: ...
    def abort(self) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0


@pytest.fixture(scope="module")
def idle_loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def open_connection(loop: asyncio.AbstractEventLoop) -> Connection:
    connection = Connection(loop)
    connection.connection_made(Wire())
    return connection


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.sets(st.integers(1, 400), max_size=9), st.booleans()
)
def test_a_reply_is_the_same_however_the_network_cuts_it(idle_loop, parts, cuts, is_chunked):
    body = b"".join(parts)
    with_length = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    raw = chunked(*parts, trailer=b"x-sum: 1\r\n") if is_chunked else with_length
    places = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
    connection = open_connection(idle_loop)
    for _ in range(2):  # the second one over the same connection
        waiter = connection.exchange((b"",), 2**20)
        for start, end in pairwise(places):
            connection.data_received(raw[start:end])
        status, headers, content = waiter.result()
        assert (status, content, connection.is_reusable) == (200, body, True)
        assert b"x-sum" not in dict(headers)


@given(st.binary(max_size=200), st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n"]))
def test_whatever_a_server_sends_ends_in_a_reply_or_an_error(idle_loop, raw, start):
    connection = open_connection(idle_loop)
    waiter = connection.exchange((b"",), 100)
    connection.data_received(start + raw)
    connection.connection_lost(None)
    assert waiter.done()
    waiter.exception()


# --- which requests it takes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://127.0.0.1:8000/v1/responses", (False, "127.0.0.1", 8000, "/v1/responses", "127.0.0.1:8000")),
        ("https://api.openai.com/v1/responses", (True, "api.openai.com", 443, "/v1/responses", "api.openai.com")),
        ("https://h:443/?a=b&c", (True, "h", 443, "/?a=b&c", "h")),
        ("http://[::1]:80/x", (False, "::1", 80, "/x", "[::1]")),
        ("http://h", (False, "h", 80, "/", "h")),
    ],
)
def test_a_plain_url_is_taken_apart(url, parts):
    assert parse_url(url) == parts


@pytest.mark.parametrize(
    "url",
    [
        *("http://u:p@h/", "http://h/%41", "http://h/a#b", "http://h:99999/", "ftp://h/", "http://ä/", "http://h/ä"),
        *("http://", "h", "http://h/\r\n", "http://h/ x", "http://h:0/"),
    ],
)
def test_any_other_url_is_left_to_aiohttp(url):
    assert parse_url(url) is None


def test_headers_and_methods_that_need_more_than_a_plain_request_are_left_to_aiohttp():
    assert find_target("POST", "http://h/", ("Authorization", "Content-Type", "X-A")) is not None
    for method, name in (("POST", "Host"), ("POST", "transfer-Encoding"), ("HEAD", "X-A"), ("PUT", "X-A")):
        assert find_target(method, "http://h/", (name,)) is None


# --- as `send` uses it ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tls_certificate(tmp_path_factory):
    """A certificate of 127.0.0.1 that is its own authority, with its key in the same file."""
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*make.split(), *names, "-keyout", path, "-out", path], check=True, capture_output=True)
    return path


@asynccontextmanager
async def sending(settings: http.SessionSettings = SETTINGS):
    session, client = http.build_session(settings), http.build_model_client(settings, 2**20)

    async def send(url: str, **kwargs):
        policy = RetryPolicy(unsent=2, repeatable=2, first_pause_s=0.001)
        given = {"policy": policy, "client": client, "same_origin": True, **kwargs}
        return await http.send(session, given.pop("method", "POST"), url, **given)

    try:
        yield send
    finally:
        client.close()
        await session.close()


async def test_a_call_that_only_wants_the_whole_reply_gets_it_and_others_go_through_the_session():
    async with sending() as send, listening() as (_, url):
        assert type(await send(url, data=b"{}")) is WholeResponse
        for other in ({"params": {"a": "b"}}, {"headers": {"Host": "x"}}, {"timeout": aiohttp.ClientTimeout(5)}):
            async with await send(url, data=b"{}", **other) as reply:
                assert isinstance(reply, aiohttp.ClientResponse)
                assert await reply.read() == b"ok"


async def test_a_redirect_is_followed_within_the_server_and_not_beyond_it():
    moved = b"HTTP/1.1 307 Moved\r\nlocation: %b\r\ncontent-length: 0\r\n\r\n"
    async with sending() as send, listening(moved % b"/there", moved % b"/there") as (peer, url):
        reply = await send(url, data=b"{}")
        assert (await reply.read(), peer.requests[-1].split()[1]) == (b"ok", b"/there")
    elsewhere = moved % b"http://127.0.0.2:1/"
    async with sending() as send, listening(elsewhere, elsewhere) as (_, url):
        with pytest.raises(ServerUnreachable, match="redirects to"):
            await send(url, data=b"{}")


async def test_a_call_is_repeated_only_where_that_is_harmless():
    async with sending() as send, listening(b"") as (peer, url):
        with pytest.raises(ServerUnreachable, match="1 attempt"):
            await send(url, data=b"{}")
        assert len(peer.requests) == 1
    async with sending() as send, listening(b"") as (peer, url):
        assert (await send(url, data=b"{}", idempotent=True)).ok
        assert len(peer.requests) == 2


async def test_a_call_that_is_not_bounded_by_its_caller_meets_the_deadline_of_the_session():
    async def hang(request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with sending(replace(SETTINGS, total_timeout_s=0.05)) as send, listening(hang) as (_, url):
        with pytest.raises(ServerDeadlineExceeded, match=r"0\.05 s"):
            await send(url, data=b"{}")


async def test_a_server_that_is_not_there_is_named_as_aiohttp_names_it(unused_tcp_port):
    async with sending() as send:
        with pytest.raises(ServerUnreachable, match="2 attempts") as caught:
            await send(f"http://127.0.0.1:{unused_tcp_port}/", data=b"{}")
        assert caught.value.trouble == "refused"
        with pytest.raises(ServerUnreachable) as caught:
            await send("http://no-such-host.invalid/", data=b"{}")
        assert caught.value.trouble == "unknown host"


async def test_a_connection_that_is_not_made_in_time_is_tried_again():
    with socket.socket() as busy, socket.socket() as first, socket.socket() as second:
        busy.bind(("127.0.0.1", 0))
        busy.listen(0)  # takes one connection that nobody accepts, and lets the others wait
        first.connect(busy.getsockname())
        second.setblocking(False)
        second.connect_ex(busy.getsockname())
        async with sending(replace(SETTINGS, connect_timeout_s=0.1)) as send:
            with pytest.raises(ServerUnreachable, match="2 attempts") as caught:
                await send(f"http://127.0.0.1:{busy.getsockname()[1]}/", data=b"{}")
    assert (caught.value.trouble, "no connection in time" in str(caught.value)) == ("unreachable", True)


async def test_what_is_wrong_with_tls_is_said(tls_certificate):
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with sending() as send, listening(serve=refuse) as (_, url):
        with pytest.raises(ServerUnreachable, match="it speaks plain HTTP") as caught:
            await send(url.replace("http", "https"), data=b"{}")
        assert caught.value.trouble == "TLS"
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(tls_certificate)
    async with sending() as send, listening(ssl=server_side) as (_, url):
        with pytest.raises(ServerUnreachable, match="its certificate is not accepted"):
            await send(url, data=b"{}")


async def test_a_server_with_a_certificate_of_a_known_authority_is_called(tls_certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(tls_certificate))
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(tls_certificate)
    async with sending() as send, listening(ssl=server_side) as (peer, url):
        for _ in range(2):
            assert await (await send(url, data=b"{}")).read() == b"ok"
        assert peer.connections == 1
