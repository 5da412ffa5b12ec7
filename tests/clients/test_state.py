# SPDX-License-Identifier: Apache-2.0
"""Responses that are fetched or continued, and counts of tokens, in front of both kinds of backend."""

from typing import Any

import anthropic
import openai
import pytest

from nemo_gym.base_responses_api_model import Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import request
from nemo_gym.testing import build_server, running
from responses_api_models.inference_provider.app import InferenceProvider
from responses_api_models.openai_model.app import SimpleModelServer
from tests.clients.served import BACKENDS, serve_model, serve_over_http
from tests.support.fake_openai import FakeOpenAI, chat, response


def connect(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_response_is_continued_with_all_that_came_before_it(backend: str) -> None:
    async with serve_model(backend) as served, connect(served.url) as client:
        rules = [{"role": "developer", "content": "be kind"}, {"role": "user", "content": "hi"}]
        first = await client.responses.create(model="m", input=rules)
        second = await client.responses.create(model="m", input="again", previous_response_id=first.id)
        assert second.output_text == "turn 2: again"
        stream = await client.responses.create(model="m", input="more", previous_response_id=second.id, stream=True)
        events = [event async for event in stream]
        assert events[-1].response.output_text == "turn 3: more"
        assert (await client.responses.retrieve(second.id)).output_text == "turn 2: again"
    if backend == "chat":
        told = [(turn["role"], turn["content"]) for turn in served.endpoint.asked[-1]["messages"]]
        assert [role for role, _ in told] == ["system", "user", "assistant", "user", "assistant", "user"]
        assert "be kind" in str(told[0])


async def test_a_chat_backend_refuses_what_it_cannot_continue() -> None:
    async with serve_model("chat") as served, connect(served.url) as client:
        with pytest.raises(openai.BadRequestError, match="send the whole conversation"):
            await client.responses.create(model="m", input="again", previous_response_id="resp_unknown")
        unkept = await client.responses.create(model="m", input="hi", store=False)
        with pytest.raises(openai.BadRequestError, match="store: false"):
            await client.responses.create(model="m", input="again", previous_response_id=unkept.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(unkept.id)
        with pytest.raises(openai.BadRequestError, match="`background` is not supported"):
            await client.responses.create(model="m", input="hi", background=True)
    assert len(served.endpoint.asked) == 1


async def test_a_response_can_be_deleted() -> None:
    async with serve_model("chat") as served, connect(served.url) as client:
        first = await client.responses.create(model="m", input="hi")
        await client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(first.id)


@pytest.mark.parametrize("fields", [{"previous_response_id": "resp_1"}, {"background": True}])
async def test_an_agent_gets_no_answer_without_its_history_either(fields: dict[str, Any]) -> None:
    async with FakeOpenAI(default=chat("42")) as fake:
        model = (InferenceProvider, {"base_url": fake.base_url, "api_key": "x", "model": "m"})
        async with running(model=model) as client:
            for body in ({"input": "hi", **fields}, NeMoGymResponseCreateParamsNonStreaming(input="hi", **fields)):
                assert (await client.post("model", "/v1/responses", json=body)).status == 400
    assert fake.received == []


class Echo(SimpleResponsesAPIModel):
    """A model server of somebody else, who passes requests on to an endpoint of his own."""

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        return NeMoGymResponse.model_validate_json(response(f"after {body.previous_response_id}").body)

    async def chat_completions(self, body: Any = Body()) -> Any:
        raise NotImplementedError


async def test_a_model_server_of_somebody_else_continues_responses_itself() -> None:
    async with running(policy_model=(Echo, {})) as client:
        body = {"input": "again", "previous_response_id": "resp_1"}
        reply = await client.post("policy_model", "/v1/responses", json=body)
        assert (await reply.json())["output"][0]["content"][0]["text"] == "after resp_1"
        assert (await client.get("policy_model", "/v1/responses/resp_1")).status == 404


async def test_answers_to_our_own_client_are_not_kept() -> None:
    async with serve_model("chat") as served:
        answer = await (await request("POST", f"{served.url}/v1/responses", json={"input": "hi"})).json()
        gone = await request("GET", f"{served.url}/v1/responses/{answer['id']}")
        assert gone.status == 404


async def test_an_id_leads_to_no_other_path_of_the_endpoint() -> None:
    async with serve_model("responses") as served:
        answer = await request("GET", f"{served.url}/v1/responses/..%2Fmodels")
        assert answer.status == 404
    assert served.endpoint.asked == []


async def test_tokens_are_counted_by_the_endpoint_if_it_can_and_else_estimated() -> None:
    turns = [{"role": "user", "content": "one two three"}]
    counts = {}
    for backend in BACKENDS:
        async with serve_model(backend) as served:
            async with anthropic.AsyncAnthropic(base_url=served.url, api_key="x") as client:
                counted = await client.messages.count_tokens(model="m", messages=turns)
                counts[backend] = counted.input_tokens
    assert counts["chat"] == 3
    assert 3 <= counts["responses"] <= 20


async def test_a_background_request_is_passed_on_and_only_an_outside_program_gets_it_unanswered() -> None:
    async with FakeOpenAI(default=response(status="queued")) as fake:
        known = {"openai_base_url": fake.base_url, "openai_api_key": "x", "openai_model": "m"}
        async with serve_over_http(build_server(SimpleModelServer, **known)) as url, connect(url) as client:
            assert (await client.responses.create(model="m", input="hi", background=True)).status == "queued"
            own = await request("POST", f"{url}/v1/responses", json={"input": "hi", "background": True})
            assert own.status == 500
    assert [body["background"] for body in fake.bodies] == [True, True]
