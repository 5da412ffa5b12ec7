# SPDX-License-Identifier: Apache-2.0
"""Endpoints and servers that send more than anybody can hold: floods, bombs, and JSON without a bottom."""

import asyncio
import gzip
import pickle
from contextlib import asynccontextmanager, suppress

import pytest

from nemo_gym._rollouts.play import Player
from nemo_gym._servers.http_session import (
    GlobalAIOHTTPAsyncClientConfig,
    close_global_aiohttp_client,
    set_global_aiohttp_client,
)
from nemo_gym._transport.call_errors import ReplyTooLarge
from nemo_gym._transport.failures import HEADER, decode_failure
from nemo_gym._transport.http_calls import MAX_MODEL_REPLY_BYTES
from nemo_gym.server_utils import get_response_json, request
from nemo_gym.testing import running
from responses_api_models.openai_model.app import SimpleModelServer
from tests.support.fake_openai import FakeOpenAI, Reply, response

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
MIB = b" " * 2**20


class Flood:
    """An endpoint that never stops; `sent` counts what was taken from it."""

    def __init__(self, headers: bytes, part: bytes) -> None:
        self._headers, self._part, self.sent = headers, part, 0

    @asynccontextmanager
    async def serve(self):
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            await close_global_aiohttp_client()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + self._headers + b"\r\n")
        try:
            with suppress(ConnectionError):
                while True:
                    writer.write(self._part)
                    await writer.drain()
                    self.sent += len(self._part)
        finally:
            writer.close()


def model_at(url: str):
    return running(model=(SimpleModelServer, {"openai_base_url": url, "openai_api_key": "k", "openai_model": "m"}))


async def failure_of_asking(url: str):
    async with model_at(url) as client:
        reply = await client.post("model", "/v1/responses", json={"input": "hi"})
        assert reply.status == 500
        return decode_failure(reply.headers[HEADER])


@pytest.mark.fault(
    place="Model endpoint",
    fault="A reply without end, with or without a length",
    outcome="`model_reply_invalid` after 64 MiB, named with its key `max_model_reply_bytes`; no attempt is repeated.",
)
@pytest.mark.parametrize(
    ("headers", "part", "most"),
    [
        (b"", MIB, MAX_MODEL_REPLY_BYTES * 1.25),
        (b"transfer-encoding: chunked\r\n", b"100000\r\n" + MIB + b"\r\n", MAX_MODEL_REPLY_BYTES * 1.25),
        (b"content-length: 99999999999\r\n", MIB, 2**24),
    ],
    ids=["until closed", "chunked", "declared"],
)
async def test_a_flood_is_given_up_at_the_limit(headers, part, most):
    flood = Flood(headers, part)
    async with flood.serve() as url:
        failure = await failure_of_asking(url)
    assert (failure.kind, failure.cause, failure.retryable) == ("model_reply_invalid", "too large", False)
    assert "more than 64 MiB after decompression" in failure.message
    assert "\nhint: " in failure.message
    assert "++max_model_reply_bytes=BYTES" in failure.message
    assert flood.sent < most


@pytest.mark.fault(
    place="Model endpoint",
    fault="A gzip bomb",
    outcome="`model_reply_invalid`: the limit counts after decompression.",
)
async def test_a_gzip_bomb_is_given_up_at_the_limit():
    set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig(max_model_reply_bytes=2**20))
    bomb = Reply(gzip.compress(b" " * (64 * 2**20)), headers={"Content-Encoding": "gzip"})
    async with FakeOpenAI(default=bomb) as fake:
        failure = await failure_of_asking(fake.base_url)
    assert (failure.kind, len(fake.bodies)) == ("model_reply_invalid", 1)
    assert "more than 1 MiB after decompression" in failure.message


async def test_replies_within_the_limit_are_read_whatever_their_coding():
    whole = response("fine", padding="x" * 900_000)
    packed = Reply(gzip.compress(whole.body), headers={"Content-Encoding": "gzip"})
    set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig(max_model_reply_bytes=2**20))
    async with FakeOpenAI(whole, packed) as fake, model_at(fake.base_url) as client:
        for _ in range(2):
            assert (await client.post("model", "/v1/responses", json={"input": "hi"})).status == 200


@pytest.mark.fault(
    place="Server",
    fault="A foreign server floods whoever has called it",
    outcome="The call fails at `max_server_reply_bytes` (1 GiB) and names the URL.",
)
async def test_replies_between_servers_have_a_limit_of_their_own():
    set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig(max_server_reply_bytes=2**20))
    async with Flood(b"", MIB).serve() as url:
        reply = await request("GET", f"{url}/tool")
        with pytest.raises(ReplyTooLarge, match=r"/tool.*\n.*1 MiB.*\n.*max_server_reply_bytes") as raised:
            await get_response_json(reply)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@pytest.mark.fault(
    place="Model endpoint",
    fault="A reply of JSON that is nested 151 to 100,000 levels deep",
    outcome="`model_reply_invalid` says so.",
)
@pytest.mark.parametrize("depth", [160, 230, 300, 1000, 1023, 100_000])
async def test_a_reply_without_a_bottom_is_an_invalid_one(depth):
    body = response("fine").body[:-1] + b', "metadata": ' + b'{"a":' * depth + b"1" + b"}" * (depth + 1)
    async with FakeOpenAI(default=Reply(body)) as fake:
        failure = await failure_of_asking(fake.base_url)
    assert failure.kind == "model_reply_invalid"
    assert "nested more than 150 levels" in failure.message or "depth limit" in failure.message


class Answered:
    """What an agent answers, as far as a player looks at it."""

    status, headers = 200, {}

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read(self) -> bytes:
        return self._body


@pytest.mark.fault(
    place="Agent server",
    fault="A result of JSON that is nested too deep to be written",
    outcome="A failure row says so; the run goes on.",
)
@pytest.mark.parametrize("depth", [230, 900, 1015, 1023])
async def test_a_result_without_a_bottom_is_a_failure_row(depth):
    body = b'{"reward": 1.0, "response": {"output": []}, "deep": ' + b"[" * depth + b"]" * depth + b"}"

    async def post(agent: str, row: dict) -> Answered:
        return Answered(body)

    outcome = await Player(post, timeout_s=None).play(
        {"agent_ref": {"name": "a"}, "_ng_task_index": 0, "_ng_rollout_index": 0}
    )
    assert outcome.failure.kind == "agent"
    assert "nested more than 200 levels deep" in outcome.failure.message
