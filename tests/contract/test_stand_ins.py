# SPDX-License-Identifier: Apache-2.0
"""What other people's tests hand in instead of the real thing, and what their code does with our objects."""

import json
import pickle
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import orjson
import pytest
from aiohttp import ClientResponse, ClientResponseError
from omegaconf import OmegaConf

from nemo_gym.base_resources_server import BaseVerifyRequest
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseOutputText,
)
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from nemo_gym.testing import reasoning, reply, tool_call


def refusal(status: int = 503) -> ClientResponseError:
    return ClientResponseError(request_info=MagicMock(), history=(), status=status, message="no")


async def says(body: Any) -> Any:
    return body


def stand_ins() -> dict[str, Any]:
    """The same refused call, faked in the ways that suites fake it."""
    by_stream = MagicMock(ok=False, status=503)
    by_stream.content.read = AsyncMock(return_value=b"busy")
    by_stream.raise_for_status.side_effect = refusal()
    by_read = AsyncMock(ok=False, status=503)
    by_read.read.return_value = b"busy"
    by_read.raise_for_status = MagicMock(side_effect=refusal())
    by_spec = MagicMock(spec=ClientResponse, ok=False, status=503)
    by_spec.read.return_value = b"busy"
    by_spec.raise_for_status.side_effect = refusal()
    bare = SimpleNamespace(
        ok=False,
        status=503,
        content=SimpleNamespace(read=lambda: says(b"busy")),
        raise_for_status=MagicMock(side_effect=refusal()),
    )
    silent = SimpleNamespace(ok=False, status=503, read=lambda: says("busy"), raise_for_status=lambda: None)
    return {"content.read": by_stream, "read": by_read, "spec": by_spec, "bare": bare, "does not raise": silent}


@pytest.mark.parametrize("kind", stand_ins())
async def test_a_refused_call_raises_with_its_body_however_it_is_faked(kind: str) -> None:
    with pytest.raises(ClientResponseError) as raised:
        await raise_for_status(stand_ins()[kind])
    assert raised.value.status == 503
    assert raised.value.response_content == b"busy"  # type: ignore[attr-defined]


async def test_a_stand_ins_own_error_is_raised_as_it_is() -> None:
    error = refusal()
    fake = MagicMock(ok=False)
    fake.raise_for_status.side_effect = error
    with pytest.raises(ClientResponseError) as raised:
        await raise_for_status(fake)
    assert raised.value is error
    assert raised.value.response_content == b""  # type: ignore[attr-defined]


@pytest.mark.parametrize("ok", [True, MagicMock(), AsyncMock()], ids=["true", "mock", "async mock"])
async def test_a_call_that_went_well_raises_nothing(ok: Any) -> None:
    await raise_for_status(SimpleNamespace(ok=ok))  # type: ignore[arg-type]


async def test_the_json_of_a_reply_however_it_is_faked() -> None:
    only_json = MagicMock()
    only_json.json = AsyncMock(return_value={"a": 1})
    text = AsyncMock()
    text.read.return_value = '{"a": 1}'
    by_spec = MagicMock(spec=ClientResponse)
    by_spec.read.return_value = b'{"a": 1}'
    by_stream = MagicMock()
    by_stream.content.read = AsyncMock(return_value=b'{"a": 1}')
    for fake in (only_json, text, by_spec, by_stream, SimpleNamespace(read=lambda: says(b'{"a": 1}'))):
        assert await get_response_json(fake) == {"a": 1}


@pytest.mark.parametrize("caught", [ValueError, json.JSONDecodeError, orjson.JSONDecodeError])
async def test_a_reply_that_is_no_json_is_caught_as_what_parsers_raise(caught: type[Exception]) -> None:
    with pytest.raises(caught, match="not the expected JSON"):
        await get_response_json(SimpleNamespace(read=lambda: says(b"<html>"), status=200))  # type: ignore[arg-type]


class Agent(SimpleResponsesAPIAgent):
    config: BaseResponsesAPIAgentConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        raise NotImplementedError

    async def run(self, body: Any) -> Any:
        raise NotImplementedError


def agent(client: Any) -> Agent:
    config = BaseResponsesAPIAgentConfig(host="h", port=1, entrypoint="", name="agent")
    return Agent(config=config, server_client=client)


@pytest.mark.parametrize(
    "request_like", [None, MagicMock(), SimpleNamespace(cookies={}), SimpleNamespace(path_params={})]
)
def test_a_request_without_a_rollout_changes_no_path(request_like: Any) -> None:
    assert agent(MagicMock(spec=ServerClient)).url_path_for_request("/v1/responses", request_like) == "/v1/responses"


def test_a_model_address_needs_no_config_where_the_lookup_is_faked(monkeypatch: pytest.MonkeyPatch) -> None:
    client = MagicMock(spec=ServerClient)
    client._build_server_base_url.return_value = "http://model:1"
    monkeypatch.setattr("nemo_gym.base_responses_api_agent.get_first_server_config_dict", MagicMock())
    assert agent(client).resolve_model_base_url("policy") == "http://model:1/v1"
    assert agent(client).resolve_model_base_url("policy", "0-1") == "http://model:1/ng-rollout/0-1/v1"


def test_a_server_block_may_be_a_plain_dict() -> None:
    client = ServerClient(head_server_config={"host": "h", "port": 1}, global_config_dict=OmegaConf.create({}))
    for block in ({"host": "a", "port": 2}, OmegaConf.create({"host": "a", "port": 2}), MagicMock(host="a", port=2)):
        assert client._build_server_base_url(block) == "http://a:2"


def test_content_parts_are_read_as_objects_and_as_dicts() -> None:
    given = {"type": "input_text", "text": "look"}
    part: Any = NeMoGymEasyInputMessage(role="user", content=[given]).content[0]
    assert part.text == part["text"] == part.get("text") == "look"
    assert part.get("image_url", "none") == "none"
    assert part == given
    assert part != {**given, "text": "away"}
    assert {**part, "text": "away"} == {"type": "input_text", "text": "away"}
    assert dict(part) == dict(part.items()) == given
    assert "text" in part
    assert [part] == [given]
    assert NeMoGymResponseOutputText(text="a") == NeMoGymResponseOutputText(text="a")
    with pytest.raises(KeyError):
        part["no such key"]


def test_replies_are_dumped_as_the_sdks_are() -> None:
    from openai.types.responses import Response

    ours = reply("hello", tool_call("look", {"at": "map"}, call_id="c"), metadata={"a": "b"})
    theirs = Response.model_validate(ours.model_dump())
    assert ours.to_dict()["output"][0]["content"][0]["text"] == "hello"
    assert json.loads(ours.to_json()) == ours.to_dict()
    assert theirs.to_dict(exclude_unset=False, exclude_none=True) == ours.to_dict(
        exclude_unset=False, exclude_none=True
    )
    assert NeMoGymResponse.model_validate(theirs.to_dict()).output_text == "hello"


def test_requests_and_replies_pickle() -> None:
    body = BaseVerifyRequest(
        responses_create_params=NeMoGymResponseCreateParamsNonStreaming(
            input=[{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]
        ),
        response=reply("x", tool_call("a"), reasoning("b")),
    )
    again = pickle.loads(pickle.dumps(body))
    assert again == body
    assert type(again.response.output[1]) is type(body.response.output[1])
