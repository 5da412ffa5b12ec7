# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from nemo_gym._serving import endpoints
from nemo_gym._serving.endpoints import endpoint_urls, wait_for_endpoints
from nemo_gym.errors import ConfigError


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(endpoints, "_PAUSE_S", 0.02)


async def answering(status: bytes = b"503 Busy"):
    paths = []

    async def handle(reader, writer):
        paths.append((await reader.readuntil(b"\r\n\r\n")).split()[1].decode())
        writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    return server, paths, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_urls_are_found_under_model_servers_only_and_once():
    config = {
        "policy_base_url": "http://top/v1",
        "m": {"responses_api_models": {"vllm_model": {"base_url": ["http://a/v1", "http://b/v1"], "api_key": "x"}}},
        "n": {"responses_api_models": {"openai_model": {"openai_base_url": "http://a/v1"}}},
        "r": {"resources_servers": {"x": {"base_url": "http://c/v1"}}},
        "e": {"responses_api_models": {"x": {"base_url": ""}}},
    }
    assert endpoint_urls(config) == {
        "http://a/v1": "m.responses_api_models.vllm_model.base_url",
        "http://b/v1": "m.responses_api_models.vllm_model.base_url",
    }


async def test_any_http_answer_will_do_and_v1_is_asked_for_its_models():
    server, paths, url = await answering()
    async with server:
        await wait_for_endpoints({f"{url}/v1": "k", f"{url}/x": "k"}, 5, pytest.fail)
    assert sorted(paths) == ["/v1/models", "/x"]


async def test_an_endpoint_that_comes_late_is_waited_for(unused_tcp_port):
    told = []
    url = f"http://127.0.0.1:{unused_tcp_port}/v1"
    waiting = asyncio.create_task(wait_for_endpoints({url: "k"}, 30, told.append))
    await asyncio.sleep(0.1)

    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", unused_tcp_port):
        await waiting
    assert told == [f"waiting for the model endpoint {url}"]


async def test_one_that_never_comes_is_an_error_with_its_url_and_key(unused_tcp_port):
    url = f"http://127.0.0.1:{unused_tcp_port}/v1"
    with pytest.raises(ConfigError, match=r"m\.base_url") as caught:
        await wait_for_endpoints({url: "m.base_url"}, 0.1, lambda _: None)
    assert url in str(caught.value)


async def test_an_unknown_host_is_reported_and_not_waited_for():
    told = []
    await wait_for_endpoints({"http://no-such-host.invalid/v1": "k"}, 30, told.append)
    assert len(told) == 1
    assert "no-such-host.invalid" in told[0]


async def test_zero_seconds_skip_the_check(unused_tcp_port):
    await wait_for_endpoints({f"http://127.0.0.1:{unused_tcp_port}": "k"}, 0, pytest.fail)
