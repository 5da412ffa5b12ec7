# SPDX-License-Identifier: Apache-2.0
import json
from unittest.mock import MagicMock

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter, ValidationError

from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymMessage,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseInputItem,
    NeMoGymResponseInputTokensDetails,
    NeMoGymResponseOutputItem,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputMessageForTraining,
    NeMoGymResponseOutputRefusal,
    NeMoGymResponseOutputText,
    NeMoGymResponseOutputTokensDetails,
    NeMoGymResponseReasoningItem,
    NeMoGymResponseUsage,
    NeMoGymSummary,
    accumulate_response_usage,
)
from nemo_gym.server_utils import ServerClient
from resources_servers.trace_reader.app import TraceReaderServer, TraceVerifyRequest, read_prompt

GROUND_TRUTH = [{"name": "look", "arguments": {"at": "map"}}, {"name": "go", "arguments": None}]


def output() -> list:
    return [
        NeMoGymResponseReasoningItem(
            id="rs_1", summary=[NeMoGymSummary(text="think", type="summary_text")], type="reasoning"
        ),
        NeMoGymResponseFunctionToolCall(
            id="fc_1", call_id="c1", name="look", arguments=json.dumps({"at": "map"}), type="function_call"
        ),
        NeMoGymFunctionCallOutput(call_id="c1", output="a map", type="function_call_output"),
        NeMoGymResponseFunctionToolCall(arguments="{oops", call_id="c2", name="go", status="completed"),
        NeMoGymResponseOutputMessage(
            id="msg_1",
            content=[
                NeMoGymResponseOutputText(type="output_text", text="done", annotations=[]),
                NeMoGymResponseOutputRefusal(type="refusal", refusal="no"),
            ],
        ),
    ]


def response(items: list, **fields) -> NeMoGymResponse:
    return NeMoGymResponse(
        **{
            "id": "resp",
            "created_at": 12.0,
            "model": "m",
            "object": "response",
            "output": items,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}],
            **fields,
        }
    )


def request(**fields) -> TraceVerifyRequest:
    params = NeMoGymResponseCreateParamsNonStreaming(
        input=[
            {"role": "system", "content": "be brief"},
            NeMoGymEasyInputMessage(role="user", content="where?"),
            {"role": "user", "content": [{"type": "input_text", "text": "part"}], "type": "message"},
        ],
        tools=[{"type": "function", "name": "look", "description": "", "parameters": {}, "strict": True}],
        metadata={"difficulty": "easy"},
    )
    return TraceVerifyRequest(
        **{"responses_create_params": params, "response": response(output()), "ground_truth": GROUND_TRUTH, **fields}
    )


@pytest.fixture
def server() -> TraceReaderServer:
    from nemo_gym.base_resources_server import BaseResourcesServerConfig

    config = BaseResourcesServerConfig(host="0.0.0.0", port=8080, entrypoint="", name="trace")
    return TraceReaderServer(config=config, server_client=MagicMock(spec=ServerClient))


async def test_items_given_as_objects(server: TraceReaderServer) -> None:
    result = await server.verify(request())
    assert result.reward == 1.0
    assert result.thoughts == ["think", "saw a map", "refused"]
    assert result.prompt == "where?\npart"


async def test_items_given_as_dicts(server: TraceReaderServer) -> None:
    dumped = [item.model_dump() for item in output()]
    result = await server.verify(request(response=response(dumped).model_dump(), ground_truth=json.dumps(GROUND_TRUTH)))
    assert result.reward == 1.0
    assert result.calls == GROUND_TRUTH


def test_over_http_and_back(server: TraceReaderServer) -> None:
    client = TestClient(server.setup_webserver())
    body = request(extra_field={"kept": [1, None]})
    for dump in (body.model_dump(), body.model_dump(mode="json"), json.loads(body.model_dump_json(exclude_unset=True))):
        reply = client.post("/verify", json=dump)
        assert reply.status_code == 200, reply.text
        again = TraceVerifyRequest.model_validate(reply.json())
        assert [item.type for item in again.response.output] == [item.type for item in body.response.output]
        assert [type(item) for item in again.response.output] == [type(item) for item in output()]
        assert again.responses_create_params.metadata == {"difficulty": "easy"}


def test_reading_what_was_sent() -> None:
    body = request()
    params = body.responses_create_params
    assert params.input[0].content == "be brief"
    assert params.input[-1].role == "user"
    assert params.tools[0]["name"] == "look"
    assert body.response.tools[0].name == "look"
    assert body.response.usage is None
    assert body.response.incomplete_details is None
    assert body.response.output[-1].content[-1].refusal == "no"
    assert body.response.output_text == "done"
    body.responses_create_params.input = "plain"
    assert read_prompt(body) == "plain"
    with pytest.raises(ValidationError):
        NeMoGymResponseCreateParamsNonStreaming(input="x", seed=1)
    with pytest.raises(ValidationError):
        TraceVerifyRequest(responses_create_params=params, response=body.response)


def test_growing_a_conversation() -> None:
    params = request().responses_create_params
    grown = params.model_copy(update={"input": params.input + response(output()).output})
    grown.input.append({"role": "user", "content": "more"})
    sent = json.loads(json.dumps(grown.model_dump(exclude_unset=True, mode="json")))
    read = NeMoGymResponseCreateParamsNonStreaming.model_validate(sent)
    assert len(read.input) == len(params.input) + 6
    assert isinstance(read.input[4], NeMoGymResponseFunctionToolCall)
    assert isinstance(read.input[-1], NeMoGymEasyInputMessage)


def test_unions_as_annotations() -> None:
    item = TypeAdapter(NeMoGymResponseOutputItem).validate_python(output()[0].model_dump())
    assert isinstance(item, NeMoGymResponseReasoningItem)
    easy = TypeAdapter(NeMoGymResponseInputItem).validate_python({"role": "user", "content": "x"})
    assert isinstance(easy, NeMoGymEasyInputMessage)
    many = TypeAdapter(list[NeMoGymResponseInputItem]).validate_python(
        [{"role": "user", "content": [{"type": "input_text", "text": "x"}], "status": "completed", "type": "message"}]
    )
    assert isinstance(many[0], NeMoGymMessage)


def test_usage() -> None:
    one = NeMoGymResponseUsage(
        input_tokens=3,
        input_tokens_details=NeMoGymResponseInputTokensDetails(cached_tokens=1),
        output_tokens=4,
        output_tokens_details=NeMoGymResponseOutputTokensDetails(reasoning_tokens=0),
        total_tokens=7,
    )
    with_usage = response([], usage=one, status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert with_usage.incomplete_details.reason == "max_output_tokens"
    total = accumulate_response_usage(None, with_usage.usage)
    total = accumulate_response_usage(total, one)
    assert (total.total_tokens, total.input_tokens_details.cached_tokens) == (14, 2)
    assert NeMoGymResponseUsage.sum_from_list([one, one, one]).output_tokens == 12


def test_training_items() -> None:
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2, 3], "generation_log_probs": [-0.1, -0.2]}
    message = output()[-1].model_dump() | tokens
    read = response([message]).output[0]
    assert isinstance(read, NeMoGymResponseOutputMessageForTraining)
    assert read.generation_token_ids == [2, 3]
    with pytest.raises(ValidationError):
        response([output()[-1].model_dump() | {"prompt_token_ids": [1]}])
