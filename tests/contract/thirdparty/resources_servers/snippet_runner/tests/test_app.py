# SPDX-License-Identifier: Apache-2.0
from typing import Any
from unittest.mock import MagicMock

import pytest

from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient
from resources_servers.snippet_runner.app import SnippetRunnerConfig, SnippetRunnerServer, SnippetVerifyRequest


@pytest.fixture(scope="class")
def server() -> SnippetRunnerServer:
    return SnippetRunnerServer(
        config=SnippetRunnerConfig(host="0.0.0.0", port=8080, entrypoint="", name="", num_processes=2),
        server_client=MagicMock(spec=ServerClient),
    )


def request(text: str, metadata: dict[str, Any] | None = None) -> SnippetVerifyRequest:
    response = NeMoGymResponse(
        id="resp_test",
        created_at=0.0,
        model="dummy",
        object="response",
        output=[
            {
                "id": "msg_test",
                "content": [{"annotations": [], "text": text, "type": "output_text"}],
                "role": "assistant",
                "status": "completed",
                "type": "message",
            }
        ],
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )
    return SnippetVerifyRequest(
        responses_create_params=NeMoGymResponseCreateParamsNonStreaming(
            input=[{"role": "user", "content": "double the number"}], temperature=0, parallel_tool_calls=False
        ),
        response=response,
        verifier_metadata=metadata,
    )


class TestSnippets:
    TESTS = {"unit_tests": {"inputs": ["2", "5"], "outputs": ["4", "10"]}}

    async def test_right(self, server: SnippetRunnerServer) -> None:
        result = await server.verify(request("```python\nprint(int(input()) * 2)\n```", self.TESTS))
        assert (result.reward, result.result) == (1.0, [True, True])
        assert result.responses_create_params.temperature == 0
        assert result.response.output[0].content[0].text.startswith("```python")

    async def test_wrong(self, server: SnippetRunnerServer) -> None:
        assert (await server.verify(request("```python\nprint(4)\n```", self.TESTS))).result == [True, False]

    async def test_empty(self, server: SnippetRunnerServer) -> None:
        assert (await server.verify(request("", self.TESTS))).reward == 0.0
        no_output = request("")
        no_output.response.output = []
        assert (await server.verify(no_output)).extracted_code is None

    async def test_no_tests_is_the_callers_mistake(self, server: SnippetRunnerServer) -> None:
        with pytest.raises(KeyError):
            await server.verify(request("print(1)"))
