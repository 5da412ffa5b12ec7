# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient

from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient
from resources_servers.tally_counter.app import (
    AddRequest,
    TallyCounterConfig,
    TallyCounterServer,
    TallySeedRequest,
    TallyVerifyRequest,
)

RESPONSE = {
    "id": "resp_1",
    "created_at": 1.0,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


class TestApp:
    def _server(self, **kwargs) -> TallyCounterServer:
        config = TallyCounterConfig(host="0.0.0.0", port=8080, entrypoint="", name="", **kwargs)
        return TallyCounterServer(config=config, server_client=MagicMock(spec=ServerClient))

    def test_sanity(self) -> None:
        assert self._server().session_id_to_tally == {}

    def test_two_servers_share_no_state(self) -> None:
        assert self._server().session_id_to_tally is not self._server().session_id_to_tally

    def test_sessions_over_http(self) -> None:
        app = self._server().setup_webserver()
        first, second = TestClient(app), TestClient(app)

        response = first.post("/seed_session", json={"initial": 3, "unknown_field": "is dropped"})
        assert response.status_code == 200
        assert response.json() == {}
        assert len(response.cookies) == 1
        second.post("/seed_session", json={"initial": 40})

        assert first.post("/add", json={"amount": 4}).json() == {"ok": True}
        assert second.post("/add", json={"amount": 2}).json() == {"ok": True}
        assert first.post("/read", json={}).json() == {"value": 7}
        assert second.post("/read").json() == {"value": 42}

        verify = {"responses_create_params": {"input": []}, "response": RESPONSE, "expected": 7}
        result = first.post("/verify", json=verify).json()
        assert result["reward"] == 1.0
        assert result["found"] == 7
        assert first.post("/verify", json=verify).json()["reward"] == 0.0

    def test_a_new_session_is_empty_and_a_cookie_comes_with_every_reply(self) -> None:
        client = TestClient(self._server().setup_webserver())
        names = [set(client.post("/read", json={}).cookies) for _ in range(3)]
        assert names == [{"TallyCounterServer___"}] * 3

    def test_bad_tool_arguments_are_a_422(self) -> None:
        client = TestClient(self._server().setup_webserver())
        response = client.post("/add", json={"amount": "many"})
        assert response.status_code == 422
        assert response.json()["detail"][0]["loc"] == ["body", "amount"]
        assert client.post("/add").status_code == 422

    async def test_handlers_called_directly(self) -> None:
        server = self._server(step_limit=5)
        request = MagicMock()
        request.session = {SESSION_ID_KEY: "abc"}
        await server.seed_session(request, TallySeedRequest(initial=1))
        assert (await server.add(request, AddRequest(amount=6))).ok is False
        assert (await server.add(request=request, body=AddRequest(amount=5))).ok is True
        body = TallyVerifyRequest.model_validate(
            {"responses_create_params": {"input": "count"}, "response": RESPONSE, "expected": 6}
        )
        assert (await server.verify(request=request, body=body)).reward == pytest.approx(1.0)
        other = SimpleNamespace(session={SESSION_ID_KEY: "nobody"})
        assert (await server.read(other)).value == 0
