# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import threading
import urllib.request
from pathlib import Path
from unittest.mock import AsyncMock, MagicMock

import pytest
from aiohttp import ClientResponseError
from fastapi import FastAPI, Request
from omegaconf import OmegaConf
from pydantic import BaseModel

from nemo_gym import global_config, server_utils
from nemo_gym._servers.direct_calls import running_apps as registry
from nemo_gym._servers.direct_calls.response import InProcessResponse
from nemo_gym._servers.http_session import close_global_aiohttp_client
from nemo_gym._servers.process_environment import run_token_path
from nemo_gym._servers.processes.private_run_files import TOKEN_HEADER
from nemo_gym._servers.processes.server_host import InlineServer, serve_inline
from nemo_gym._transport import http_calls as http
from nemo_gym._transport.call_errors import ServerUnreachable
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.errors import NoHeadServerError, PortInUseError, UnknownServerError
from nemo_gym.server_utils import (
    HeadServer,
    ServerClient,
    get_response_json,
    get_server_url,
    is_nemo_gym_fastapi_entrypoint,
    raise_for_status,
    request,
)
from nemo_gym.testing import asked, build_server, reply, running


class Sum(BaseModel):
    numbers: list[int]


class Adder(SimpleResourcesServer):
    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/add")(self.add)
        app.post("/fail")(self.fail)
        return app

    async def add(self, body: Sum, request: Request) -> dict[str, int]:
        return {"sum": sum(body.numbers)}

    async def fail(self) -> None:
        raise RuntimeError("adding machine on fire")

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


@pytest.fixture
async def http_session():
    yield
    await close_global_aiohttp_client()


@pytest.fixture
def the_config(monkeypatch, unused_tcp_port_factory):
    config = OmegaConf.create(
        {
            "head_server": {"host": "127.0.0.1", "port": unused_tcp_port_factory()},
            "policy_api_key": "sk-secret",
            "adder": {
                "resources_servers": {
                    "adder": {
                        "host": "127.0.0.1",
                        "port": unused_tcp_port_factory(),
                        "entrypoint": "app.py",
                        "domain": "math",
                    }
                }
            },
        }
    )
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", config)
    return config


def listening(config) -> list[InlineServer]:
    where = config.adder.resources_servers.adder
    app = Adder.from_global_config(config, "adder").build_complete_app(config)
    return [InlineServer("adder", where.host, where.port, app)]


# --- calls ---------------------------------------------------------------------------------------------------------


async def test_a_server_is_called_by_its_name_over_http(the_config, http_session):
    async with serve_inline(listening(the_config)):
        client = ServerClient(head_server_config=BaseServerConfig(host="x", port=1), global_config_dict=the_config)
        # From another loop there is no way round the socket.
        answer = await asyncio.to_thread(asyncio.run, _add_and_close(client))
    assert answer == {"sum": 6}


async def _add_and_close(client: ServerClient) -> dict:
    try:
        return await get_response_json(await client.post("adder", "/add", json=Sum(numbers=[1, 2, 3])))
    finally:
        await close_global_aiohttp_client()


async def test_a_server_in_this_process_is_called_without_a_socket(the_config):
    async with serve_inline(listening(the_config)):
        client = ServerClient(head_server_config=BaseServerConfig(host="x", port=1), global_config_dict=the_config)
        answer = await client.post("adder", "/add", json={"numbers": [4, 5]})
        assert isinstance(answer, InProcessResponse)
        assert await answer.json() == {"sum": 9}


async def test_a_50_mb_body_is_served(the_config):
    async with running(adder=Adder) as client:
        answer = await client.post(
            "adder",
            "/add",
            data=b'{"numbers": [1,' + b" " * 50_000_000 + b"2]}",
            headers={"content-type": "application/json"},
        )
        assert await answer.json() == {"sum": 3}


async def test_a_body_over_the_servers_limit_is_refused_with_413():
    async with running(adder=(Adder, {"max_request_body_bytes": 1000})) as client:
        answer = await client.post("adder", "/add", json={"numbers": [1] * 1000})
        assert answer.status == 413
        assert "max_request_body_bytes" in (await answer.json())["detail"]


@pytest.mark.parametrize("body", [b"not json", b"", b"[1, 2", b'"text"', b"\xff\xfe"])
async def test_a_body_that_is_not_what_the_server_takes_is_a_422(body):
    async with running(adder=Adder) as client:
        answer = await client.post("adder", "/add", data=body, headers={"content-type": "application/json"})
        assert answer.status == 422
        assert (await answer.json())["detail"]


async def test_what_a_handler_raises_reaches_the_caller_as_text():
    async with running(adder=Adder) as client:
        answer = await client.post("adder", "/fail")
        with pytest.raises(ClientResponseError) as caught:
            await raise_for_status(answer)
    assert caught.value.status == 500
    assert caught.value.response_content == b"\"RuntimeError('adding machine on fire')\""


@pytest.mark.parametrize("name", ["addre", "subtracter", "head_server", "policy_api_key"])
async def test_an_unknown_server_name_is_an_error_that_lists_those_there_are(the_config, name):
    client = ServerClient(head_server_config=BaseServerConfig(host="x", port=1), global_config_dict=the_config)
    calls = [
        lambda: asyncio.run(client.post(name, "/add", json={})),
        lambda: asyncio.run(client.get(name, "/")),
        lambda: get_server_url(name),
        lambda: Adder.config_of_instance(the_config, name),
    ]
    for call in calls:
        with pytest.raises(UnknownServerError) as caught:
            await asyncio.to_thread(call)
        assert f"there is no server {name!r}" in str(caught.value)
        assert "\n  adder (resources_servers)" in str(caught.value)
        assert ("Did you mean 'adder'?" in str(caught.value)) == (name == "addre")
        assert "sk-secret" not in str(caught.value)


def test_a_client_of_a_config_without_servers_says_so():
    empty = OmegaConf.create({"limit": 1})
    client = ServerClient(head_server_config=BaseServerConfig(host="x", port=1), global_config_dict=empty)
    with pytest.raises(UnknownServerError, match="no servers at all"):
        client.poll_for_status("adder")


async def test_a_reply_that_is_not_json_is_a_typed_error():
    with pytest.raises(ValueError, match="<html>"):
        await get_response_json(
            InProcessResponse("POST", "http://x/", 200, [(b"content-type", b"text/html")], b"<html>")
        )


async def test_raise_for_status_takes_other_peoples_stand_ins():
    fine = MagicMock(ok=True)
    await raise_for_status(fine)
    broken = MagicMock(ok=False, status=502, reason="Bad Gateway", method="POST", url="http://x/")
    broken.read, broken.content.read = AsyncMock(return_value=b"inner"), AsyncMock(return_value=b"inner")
    with pytest.raises(ClientResponseError) as caught:
        await raise_for_status(broken)
    assert (caught.value.status, caught.value.response_content) == (502, b"inner")


async def test_raise_for_status_takes_a_body_that_was_read_already():
    broken = MagicMock(ok=False, status=502, reason="Bad Gateway", method="POST", url="http://x/")
    broken.read = broken.content.read = AsyncMock(side_effect=RuntimeError("read twice"))
    with pytest.raises(ClientResponseError) as caught:
        await raise_for_status(broken, content=b"inner")
    assert (caught.value.status, caught.value.response_content) == (502, b"inner")


async def test_the_attempts_at_a_server_that_is_not_there_can_be_bounded(monkeypatch, http_session, unused_tcp_port):
    tried = []
    send = http.send

    async def noted(*args, **kwargs):
        tried.append(kwargs["policy"])
        return await send(*args, **kwargs)

    monkeypatch.setattr(http, "send", noted)
    with pytest.raises(ServerUnreachable):
        await request("GET", f"http://127.0.0.1:{unused_tcp_port}/", _max_connection_retries=0, _server_name="adder")
    assert [(policy.unsent, policy.repeatable) for policy in tried] == [(1, 1)]


def test_a_process_can_be_told_to_reach_one_model_server_elsewhere(the_config, monkeypatch):
    monkeypatch.setenv("NEMO_GYM_MODEL_SERVER_NAME", "adder")
    monkeypatch.setenv("NEMO_GYM_MODEL_SERVER_BASE_URL", "http://elsewhere:81/")
    client = ServerClient(head_server_config=the_config.head_server, global_config_dict=the_config)
    assert client._resolve_base_url("adder") == "http://elsewhere:81"
    monkeypatch.setenv("NEMO_GYM_MODEL_SERVER_NAME", "another")
    client = ServerClient(head_server_config=the_config.head_server, global_config_dict=the_config)
    assert client._resolve_base_url("adder") == get_server_url("adder")


def test_a_process_with_a_config_of_its_parent_does_not_ask_the_head_server(the_config, monkeypatch):
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", "{}")
    assert ServerClient.load_from_global_config().global_config_dict == the_config


def test_a_server_may_say_that_it_never_uses_ray(the_config):
    class WithoutRay(Adder):
        ray_enabled = False

    assert Adder.ray_enabled is None
    assert WithoutRay.from_global_config(the_config, "adder").ray_enabled is False


async def test_request_sends_json_and_returns_error_statuses(the_config, http_session):
    where = the_config.adder.resources_servers.adder
    async with serve_inline(listening(the_config)):
        url = f"http://{where.host}:{where.port}"
        fine = await request("POST", f"{url}/add", json={"numbers": [1]})
        missing = await request("GET", f"{url}/nowhere")
    assert (fine.status, await fine.json(), missing.status) == (200, {"sum": 1}, 404)


def test_get_server_url_reads_the_config(the_config):
    port = the_config.adder.resources_servers.adder.port
    assert get_server_url("adder") == f"http://127.0.0.1:{port}"


# --- the head server -------------------------------------------------------------------------------------------------


@pytest.fixture
def head(the_config):
    server, thread, head_server = HeadServer.run_webserver()
    head_server.set_server_instances([{"name": "adder"}])
    yield head_server
    server.should_exit = True
    thread.join(timeout=300)
    assert not thread.is_alive()


def fetch(head_server: HeadServer, path: str, **headers: str):
    url = f"http://{head_server.config.host}:{head_server.config.port}{path}"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=300) as answer:
        return json.loads(answer.read())


def test_the_head_server_answers_as_the_contract_says(head, the_config):
    assert fetch(head, "/") == {"status": "ok"}
    assert fetch(head, "/server_instances") == [{"name": "adder"}]
    assert OmegaConf.create(fetch(head, "/global_config_dict_yaml")).adder == the_config.adder


def test_a_stranger_sees_no_secret(head):
    assert OmegaConf.create(fetch(head, "/global_config_dict_yaml")).policy_api_key == "****"
    assert OmegaConf.create(fetch(head, "/global_config_dict_yaml", **{TOKEN_HEADER: "guess"})).policy_api_key == "****"


def test_the_config_itself_keeps_its_secrets(head, the_config):
    fetch(head, "/global_config_dict_yaml")
    assert the_config.policy_api_key == "sk-secret"


def test_the_users_own_client_sees_them_without_being_told_how(head):
    assert ServerClient.load_from_global_config().global_config_dict.policy_api_key == "sk-secret"


def test_only_the_user_can_read_the_token(head):
    path = run_token_path(head.config)
    assert path.stat().st_mode & 0o077 == 0


def test_without_a_head_server_the_error_names_its_address(the_config):
    with pytest.raises(ValueError, match=str(the_config.head_server.port)) as caught:
        ServerClient.load_from_global_config()
    assert isinstance(caught.value, NoHeadServerError)
    assert "hint" in str(caught.value)


@pytest.mark.parametrize("answer", [[1, 2], "a: {", 7])
async def test_something_else_at_the_head_servers_address_is_no_head_server(the_config, answer):
    other = FastAPI()
    other.get("/global_config_dict_yaml")(lambda: answer)
    where = the_config.head_server
    async with serve_inline([InlineServer("other", where.host, where.port, other)]):
        registry.unhost_app(where.host, where.port)  # as if it were in another process
        with pytest.raises(NoHeadServerError, match="something else"):
            await asyncio.to_thread(ServerClient.load_from_global_config)


def test_polling_tells_what_answers(head, the_config):
    client = ServerClient.load_from_global_config()
    assert client.poll_for_status("head_server") == "success"
    assert client.poll_for_status("adder") == "connection_error"


# --- starting ------------------------------------------------------------------------------------------------------


async def test_a_port_that_is_taken_is_named_with_its_server_and_nothing_is_served(the_config):
    async with serve_inline(listening(the_config)):
        other = InlineServer("other", "127.0.0.1", the_config.head_server.port, FastAPI())
        with pytest.raises(PortInUseError, match="'adder'") as caught:
            async with serve_inline([other, *listening(the_config)]):
                pytest.fail("served on a port that is taken")
        assert str(the_config.adder.resources_servers.adder.port) in str(caught.value)
        assert "pid" in str(caught.value)
    async with serve_inline([other]):  # its port was given back
        pass


def test_liveness_is_a_get_on_the_root():
    from starlette.testclient import TestClient

    server = build_server(Adder)
    assert TestClient(server.build_complete_app(OmegaConf.create({}))).get("/").json() == {"status": "ok"}


async def test_sessions_are_kept_apart_by_class_and_instance_name():
    assert build_server(Adder, name="one").get_session_middleware_key() == "Adder___one"


def test_the_entrypoint_idiom_is_true_only_for_the_worker_of_that_file(monkeypatch, tmp_path: Path):
    app = tmp_path / "app.py"
    assert not is_nemo_gym_fastapi_entrypoint(str(app))
    monkeypatch.setenv("IS_NEMO_GYM_FASTAPI_WORKER", "1")
    monkeypatch.setenv("IS_NEMO_GYM_FASTAPI_ENTRYPOINT", str(app))
    assert is_nemo_gym_fastapi_entrypoint(str(app))
    assert not is_nemo_gym_fastapi_entrypoint(str(tmp_path / "other.py"))


# --- idioms of servers and tests that others wrote -------------------------------------------------------------------


async def test_a_server_is_built_with_a_mocked_client_and_called_directly():
    config = Adder.model_fields["config"].annotation(host="0.0.0.0", port=8080, entrypoint="", name="")
    server = Adder(config=config, server_client=MagicMock(spec=ServerClient))
    body = BaseVerifyRequest(responses_create_params=asked("1+1?"), response=reply("2"))
    assert (await server.verify(body)).reward == 1.0


def test_patch_sites_of_other_peoples_tests_exist():
    for name in ("get_global_config_dict", "get_first_server_config_dict", "OmegaConf", "DictConfig", "ClientResponse"):
        assert hasattr(server_utils, name)


async def test_servers_that_start_together_wait_for_each_other(monkeypatch):
    policies = []

    async def send(*_, policy, **__):
        policies.append(policy)

    monkeypatch.setattr(server_utils.http, "send", send)
    monkeypatch.setattr(server_utils, "get_global_aiohttp_client", lambda: None)
    monkeypatch.setattr(server_utils, "starting", threading.Event())
    await server_utils.request("GET", "http://x/")
    server_utils.starting.set()
    await server_utils.request("GET", "http://x/")
    usual, patient = policies
    assert usual.unsent < patient.unsent
    assert usual.repeatable == patient.repeatable == 3
