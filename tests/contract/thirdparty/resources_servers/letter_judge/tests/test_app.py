# SPDX-License-Identifier: Apache-2.0
import json
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from aiohttp import ClientResponseError
from fastapi.testclient import TestClient

from nemo_gym.config_types import ModelServerRef
from nemo_gym.judge import JudgeError
from nemo_gym.openai_utils import (
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
)
from nemo_gym.server_utils import ServerClient
from resources_servers.letter_judge.app import (
    LetterJudgeConfig,
    LetterJudgeServer,
    LetterJudgeVerifyRequest,
)


def make_response(text: str) -> NeMoGymResponse:
    return NeMoGymResponse(
        id="resp",
        created_at=0.0,
        model="m",
        object="response",
        output=[
            NeMoGymResponseOutputMessage(
                id="msg",
                content=[NeMoGymResponseOutputText(annotations=[], text=text, type="output_text")],
                role="assistant",
                status="completed",
                type="message",
            )
        ],
        parallel_tool_calls=False,
        tool_choice="none",
        tools=[],
    )


class TestApp:
    @pytest.fixture
    def config(self) -> LetterJudgeConfig:
        return LetterJudgeConfig(
            host="0.0.0.0",
            port=8080,
            entrypoint="",
            judge_model_server=ModelServerRef(type="responses_api_models", name="judge"),
            judge_responses_create_params=NeMoGymResponseCreateParamsNonStreaming(input=[], max_output_tokens=64),
        )

    def _request(self, text: str, **extra: Any) -> LetterJudgeVerifyRequest:
        return LetterJudgeVerifyRequest(
            responses_create_params=NeMoGymResponseCreateParamsNonStreaming(input=[{"role": "user", "content": "A?"}]),
            response=make_response(text),
            expected_answer="A",
            **extra,
        )

    async def test_the_judge_decides(self, config: LetterJudgeConfig) -> None:
        server_mock = MagicMock(spec=ServerClient)
        server = LetterJudgeServer(config=config, server_client=server_mock)
        response_mock = AsyncMock()
        response_mock.json = AsyncMock(return_value=make_response("[[YES]]").model_dump())
        response_mock.read = AsyncMock(return_value=make_response("[[YES]]").model_dump_json())
        server_mock.post = AsyncMock(return_value=response_mock)

        result = await server.verify(self._request("It is A", difficulty="hard"))
        assert result.reward == pytest.approx(1.0)
        assert result.judge_evaluations[0].verdict == "same"
        assert result.difficulty == "hard"

        server_mock.post.assert_called_once()
        sent = server_mock.post.call_args.kwargs
        assert sent["server_name"] == "judge"
        assert sent["url_path"] == "/v1/responses"
        assert sent["json"].input[0].content == "Expected A\nFound It is A"
        assert sent["json"].max_output_tokens == 64
        assert server.config.judge_responses_create_params.input == []

    async def test_only_json_is_faked(self, config: LetterJudgeConfig) -> None:
        server = LetterJudgeServer(config=config, server_client=MagicMock(spec=ServerClient))
        fake = MagicMock(ok=True, status=200)
        fake.json = AsyncMock(return_value=json.loads(make_response("[[NO]] [[YES]]").model_dump_json()))
        server.server_client.post = AsyncMock(return_value=fake)
        assert (await server.verify(self._request("B"))).reward == pytest.approx(0.0)

    @pytest.mark.parametrize("limit", [None, 1])
    async def test_nothing_to_judge_calls_nobody(self, config: LetterJudgeConfig, limit: int | None) -> None:
        config = config.model_copy(update={"judge_endpoint_max_concurrency": limit})
        server = LetterJudgeServer(config=config, server_client=MagicMock(spec=ServerClient))
        server.server_client.post = AsyncMock(side_effect=AssertionError)
        result = await server.verify(self._request("   "))
        assert (result.reward, result.status) == (0.0, "empty")

    async def test_a_failing_judge_raises(self, config: LetterJudgeConfig) -> None:
        server = LetterJudgeServer(config=config, server_client=MagicMock(spec=ServerClient))
        refused = MagicMock()
        refused.ok = False
        refused.status = 500
        refused.content.read = AsyncMock(return_value=b"overloaded")
        refused.raise_for_status.side_effect = ClientResponseError(request_info=MagicMock(), history=(), status=500)
        server.server_client.post = AsyncMock(return_value=refused)
        with pytest.raises(JudgeError):
            await server.verify(self._request("B"))

    def test_over_http_a_failing_judge_is_a_kept_rollout(self, config: LetterJudgeConfig) -> None:
        server = LetterJudgeServer(config=config, server_client=MagicMock(spec=ServerClient))
        server.server_client.post = AsyncMock(side_effect=RuntimeError("gone"))
        client = TestClient(server.setup_webserver())
        reply = client.post("/verify", json=self._request("B", source="web").model_dump())
        assert reply.status_code == 200
        body = reply.json()
        assert body["reward"] == 0.0
        assert body["_ng_failure_class"] == "judge_failed"
        assert "gone" in body["_ng_failure_judge_error"]
        assert body["source"] == "web"
        assert body["response"]["output"][0]["content"][0]["text"] == "B"
        assert client.get("/reverify_mode").json() == "stateless"
