# SPDX-License-Identifier: Apache-2.0
import asyncio
import shutil
import ssl
import subprocess

import pytest

from nemo_gym._servers import model_endpoints as endpoints
from nemo_gym._servers.model_endpoints import find_endpoint_urls, wait_for_endpoints
from nemo_gym.errors import ConfigError


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(endpoints, "_PAUSE_S", 0.02)


def quietly(text: str) -> None:
    """Tell nobody."""


async def answering(status: bytes = b"503 Busy", port: int = 0, tls: ssl.SSLContext | None = None):
    paths = []

    async def handle(reader, writer):
        words = (await reader.read(1 << 16)).split()  # what speaks TLS sends no line
        paths.append(words[1].decode(errors="replace"))
        writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port, ssl=tls)
    return server, paths, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_urls_are_found_under_model_servers_only_and_once():
    config = {
        "policy_base_url": "http://top/v1",
        "m": {"responses_api_models": {"vllm_model": {"base_url": ["http://a/v1", "http://b/v1"], "api_key": "x"}}},
        "n": {"responses_api_models": {"openai_model": {"openai_base_url": "http://a/v1"}}},
        "r": {"resources_servers": {"x": {"base_url": "http://c/v1"}}},
        "e": {"responses_api_models": {"x": {"base_url": ""}}},
    }
    assert find_endpoint_urls(config) == {
        "http://a/v1": "m.responses_api_models.vllm_model.base_url",
        "http://b/v1": "m.responses_api_models.vllm_model.base_url",
    }


async def test_any_http_answer_will_do_and_v1_is_asked_for_its_models():
    server, paths, url = await answering()
    async with server:
        await wait_for_endpoints({f"{url}/v1": "k", f"{url}/x": "k"}, 5, pytest.fail, quietly)
    assert sorted(paths) == ["/v1/models", "/x"]


async def test_an_endpoint_that_comes_late_is_waited_for_with_a_counter(unused_tcp_port):
    counted, is_counting = [], asyncio.Event()

    def count(text: str) -> None:
        counted.append(text)
        is_counting.set()

    url = f"http://127.0.0.1:{unused_tcp_port}/v1"
    waiting = asyncio.create_task(wait_for_endpoints({url: "k"}, 30, pytest.fail, count))
    await is_counting.wait()
    server, _, _ = await answering(port=unused_tcp_port)
    async with server:
        await waiting
    assert counted[0] == f"waiting for the model at {url}: 0 s, connection refused; Ctrl-C ends it"
    assert counted[-1] == "", "the counter goes away"


async def test_one_that_never_comes_is_an_error_with_its_url_and_key(unused_tcp_port):
    url = f"http://user:hunter2@127.0.0.1:{unused_tcp_port}/v1"
    with pytest.raises(ConfigError, match=r"m\.base_url.*connection refused") as caught:
        await wait_for_endpoints({url: "m.base_url"}, 0.1, quietly, quietly)
    assert f"127.0.0.1:{unused_tcp_port}/v1" in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_servers_do_not_wait_for_an_unknown_host_and_say_so():
    told = []
    await wait_for_endpoints({"http://no-such-host.invalid/v1": "k"}, 30, told.append, quietly)
    assert len(told) == 1
    assert "'no-such-host.invalid' does not resolve" in told[0]


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/v1", "http://no-such-host.invalid/v1"])
async def test_who_is_about_to_call_a_model_that_is_not_there_learns_it_at_once(url, unused_tcp_port):
    url = url.format(port=unused_tcp_port)
    with pytest.raises(ConfigError, match=r"--wait-for-model") as caught:
        await wait_for_endpoints({url: "m.base_url"}, 0, pytest.fail, quietly, must_answer=True)
    assert url in str(caught.value)


async def test_an_endpoint_that_hangs_up_is_there_for_who_does_not_wait():
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        await wait_for_endpoints({url: "k"}, 0, pytest.fail, quietly, must_answer=True)


@pytest.fixture
def tls(tmp_path):
    """What a server needs to speak TLS, with a certificate that nobody trusts."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    subprocess.run([*make.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


async def test_plain_http_against_tls_is_an_error_even_for_who_would_wait(tls):
    server, _, url = await answering(tls=tls)
    async with server:
        with pytest.raises(ConfigError, match="write `https://` instead of `http://`"):
            await wait_for_endpoints({f"{url}/v1": "k"}, 30, pytest.fail, quietly, must_answer=True)


async def test_tls_against_plain_http_is_an_error_even_for_who_would_wait():
    server, _, url = await answering(b"400 Bad Request")
    url = url.replace("http://", "https://")
    async with server:
        with pytest.raises(ConfigError, match="write `http://` instead of `https://`"):
            await wait_for_endpoints({f"{url}/v1": "k"}, 30, pytest.fail, quietly, must_answer=True)


async def test_servers_start_although_the_scheme_is_wrong_and_say_so(tls):
    told = []
    server, _, url = await answering(tls=tls)
    async with server:
        await wait_for_endpoints({f"{url}/v1": "k"}, 30, told.append, quietly)
    assert len(told) == 1
    assert "it speaks TLS" in told[0]
