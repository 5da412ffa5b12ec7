# SPDX-License-Identifier: Apache-2.0
"""Who knows the name of a server, which everybody does, can make neither its cookies nor its MCP grants."""

import json
from base64 import b64encode

import itsdangerous
import pytest
from fastapi import Request
from fastapi.testclient import TestClient
from starlette.middleware.sessions import SessionMiddleware

from nemo_gym._servers import process_environment as environment
from nemo_gym._servers.mcp.session import Grant, GrantSigner
from nemo_gym._servers.processes import private_run_files as run_files
from nemo_gym.base_resources_server import BaseResourcesServerConfig, SimpleResourcesServer
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.mcp_auto_exposure import TOKEN_HEADER
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.testing import build_server

HEAD = BaseServerConfig(host="127.0.0.1", port=1)


class Diary(SimpleResourcesServer):
    """Tells the session that it is called in."""

    config: BaseResourcesServerConfig

    def setup_webserver(self):
        app = super().setup_webserver()

        async def read_diary(request: Request) -> dict[str, str]:
            return {"diary of": request.session[SESSION_ID_KEY]}

        app.post("/read_diary")(read_diary)
        return app

    async def verify(self, body):
        raise NotImplementedError


class DiaryWithItsOwnMiddleware(Diary):
    """Brings the session middleware that servers written for NeMo Gym bring, with the key that they sign with."""

    def get_session_middleware_key(self) -> str:
        return "my-own-key"

    def setup_session_middleware(self, app):
        key = self.get_session_middleware_key()
        if not getattr(app.state, "has_session", False):
            app.state.has_session = True
            app.middleware("http")(self._add_session_id)
            app.add_middleware(SessionMiddleware, secret_key=key, session_cookie=key)

    @staticmethod
    async def _add_session_id(request, call_next):
        request.session.setdefault(SESSION_ID_KEY, "first")
        return await call_next(request)


@pytest.fixture
def run():
    """A run of ours, of which this process is a part."""
    run_files.create_token(environment.run_token_path(HEAD))
    with environment.share_run_token(HEAD):
        yield


def client_of(cls=Diary, **config):
    server = build_server(cls, **config)
    return TestClient(server.build_complete_app({}), raise_server_exceptions=False), server.get_session_middleware_key()


def forge_cookie(key: str, session_id: str) -> str:
    content = b64encode(json.dumps({SESSION_ID_KEY: session_id}).encode())
    return itsdangerous.TimestampSigner(key).sign(content).decode()


def call_tool(client, token: str) -> dict:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read_diary", "arguments": {}}}
    headers = {TOKEN_HEADER: token, "accept": "application/json, text/event-stream"}
    return client.post("/mcp", json=call, headers=headers)


@pytest.mark.fault(
    place="Session",
    fault="A cookie is signed with the name of the server, which everybody knows",
    outcome="It opens no session but a new one; the server's own cookies go on working.",
)
@pytest.mark.usefixtures("run")
def test_a_cookie_that_is_signed_with_the_name_of_a_server_opens_nobodys_session():
    client, key = client_of()
    mine = client.post("/read_diary").json()
    assert client.post("/read_diary").json() == mine
    stranger = client_of()[0]
    stranger.cookies.set(key, forge_cookie(key, mine["diary of"]))
    assert stranger.post("/read_diary").json() != mine


@pytest.mark.fault(
    place="MCP",
    fault="A grant is signed with the name of the server, inside or outside of a run",
    outcome="No tool can be called with it; the grants of `/seed_session` work.",
)
@pytest.mark.parametrize("is_run", [True, False])
def test_a_grant_that_is_signed_with_the_name_of_a_server_opens_no_tool(is_run, request):
    if is_run:
        request.getfixturevalue("run")
    client, key = client_of(expose_tools_over_mcp=True)
    seeded = client.post("/seed_session", json={}).json()
    (metadata,) = [value for value in seeded.values() if isinstance(value, dict) and "headers" in value]
    session_id = client.post("/read_diary").json()["diary of"]
    assert session_id in call_tool(client, metadata["headers"][TOKEN_HEADER]).text
    forged = call_tool(client, GrantSigner(key).sign(Grant(session_id, None)))
    assert session_id not in forged.text


@pytest.mark.usefixtures("run")
def test_all_processes_of_a_run_derive_the_same_secret_and_those_of_another_run_do_not(monkeypatch):
    secret = environment.derive_run_secret("purpose")
    assert environment.derive_run_secret("another") != secret
    assert environment.derive_run_secret("purpose") == secret
    run_files.create_token(environment.run_token_path(HEAD))
    assert environment.derive_run_secret("purpose") not in (secret, None)


def test_a_server_that_was_started_by_hand_signs_as_its_replicas_elsewhere_do():
    client, key = client_of()
    client.cookies.set(key, forge_cookie(key, "begun at another replica"))
    assert client.post("/read_diary").json() == {"diary of": "begun at another replica"}
    assert environment.derive_run_secret("purpose") is None


@pytest.mark.usefixtures("run")
def test_a_server_with_a_session_middleware_of_its_own_keeps_its_sessions_also_over_mcp():
    client, key = client_of(DiaryWithItsOwnMiddleware, expose_tools_over_mcp=True)
    client.cookies.set(key, forge_cookie(key, "a session"))
    seeded = client.post("/seed_session", json={}).json()
    (metadata,) = [value for value in seeded.values() if isinstance(value, dict) and "headers" in value]
    assert "a session" in call_tool(client, metadata["headers"][TOKEN_HEADER]).text
