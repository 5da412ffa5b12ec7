# SPDX-License-Identifier: Apache-2.0
"""Model replies that come with a success and are no answer: failures of the model's endpoint, never a reward of 0."""

import json
from typing import Any

import pytest

from nemo_gym._rollouts.outcomes import Failed, Outcome, Scored
from nemo_gym._rollouts.play import RetryRule, RetryRules
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.judge import JudgeError, ask_judge
from nemo_gym.testing import ScriptedModel, asked, build_server, reasoning, reply, running
from responses_api_models.azure_openai_model.app import AzureOpenAIModelServer
from responses_api_models.inference_provider.app import InferenceProvider
from responses_api_models.openai_model.app import SimpleModelServer
from responses_api_models.vllm_model.app import VLLMModel
from tests.support.fake_openai import FakeOpenAI, Reply, chat, completion, response
from tests.support.one_rollout import play_rollout

BOOM = {"code": "server_error", "message": "boom"}
NO_RESPONSES = {
    "empty output": response(),
    "no status and empty output": response(status=None),
    "queued": response("half", status="queued"),
    "in progress": response("half", status="in_progress"),
    "failed": response("half", status="failed"),
    "cancelled": response("half", status="cancelled"),
    "an error": response("half", error=BOOM),
}
NO_COMPLETIONS = {
    "message null": chat(choice={"message": None}),
    "finish_reason error": chat("half", finish_reason="error", choice={"error": BOOM}),
    "finish_reason abort": chat("half", finish_reason="abort"),
    "finish_reason cancelled": chat("half", finish_reason="cancelled"),
    "no choices": chat(top={"choices": []}),
}
THOUGHT = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]}
ANSWERS = {
    "cut off": response("half", status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    "cut off before the first item": response(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    "thinking only, cut off": response(
        THOUGHT, status="incomplete", incomplete_details={"reason": "max_output_tokens"}
    ),
    "thinking only": response(THOUGHT),
    "empty text": response(""),
}


class World(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=0.0)


async def play(model: Any) -> Outcome:
    """Play one rollout, once, with a verifier that scores everything 0."""
    once = RetryRules(by_kind={"model_reply_invalid": RetryRule(1, 0.0)})
    return await play_rollout(World, model, retries=once)


def model_servers(fake: FakeOpenAI) -> dict[str, Any]:
    vllm = {
        "base_url": fake.base_url,
        "api_key": "k",
        "model": "m",
        "return_token_id_information": False,
        "uses_reasoning_parser": True,
    }
    openai = {"openai_base_url": fake.base_url, "openai_api_key": "k", "openai_model": "m"}
    return {
        "openai_model": (SimpleModelServer, openai),
        "vllm_model": (VLLMModel, vllm),
        "vllm_model, native": (VLLMModel, {**vllm, "is_responses_native": True}),
        "vllm_model, completions": (VLLMModel, {**vllm, "use_completions_api": True}),
        "azure_openai_model": (
            AzureOpenAIModelServer,
            {
                **openai,
                "openai_base_url": fake.url,
                "default_query": {"api-version": "1"},
                "num_concurrent_requests": 1,
            },
        ),
        "inference_provider": (InferenceProvider, {"base_url": fake.base_url, "api_key": "k", "model": "m"}),
    }


def expect_no_answer(outcome: Outcome) -> None:
    assert isinstance(outcome, Failed)
    assert (outcome.failure.kind, outcome.failure.retryable) == ("model_reply_invalid", True)
    assert "no answer" in outcome.failure.message


@pytest.mark.fault(
    place="Model endpoint",
    fault="Responses reply with `output: []`, an error, or status queued, in_progress, failed or cancelled",
    outcome="The rollout fails as `model_reply_invalid`, which is tried again; it is not scored 0.",
)
@pytest.mark.parametrize("server", ["openai_model", "vllm_model, native"])
@pytest.mark.parametrize("what", NO_RESPONSES)
async def test_a_response_that_is_no_answer_is_not_scored(server, what):
    async with FakeOpenAI(NO_RESPONSES[what]) as fake:
        expect_no_answer(await play(model_servers(fake)[server]))


@pytest.mark.fault(
    place="Model endpoint",
    fault="Chat reply with `message: null`, without choices, or with finish_reason error, abort or cancelled",
    outcome="The rollout fails as `model_reply_invalid`, which is tried again; it is not scored 0.",
)
@pytest.mark.parametrize("server", ["vllm_model", "azure_openai_model", "inference_provider"])
@pytest.mark.parametrize("what", NO_COMPLETIONS)
async def test_a_chat_completion_that_is_no_answer_is_not_scored(server, what):
    async with FakeOpenAI(NO_COMPLETIONS[what]) as fake:
        expect_no_answer(await play(model_servers(fake)[server]))


@pytest.mark.parametrize("bad", [completion("half", finish_reason="abort"), completion(None)])
async def test_a_text_completion_that_is_no_answer_is_not_scored(bad):
    async with FakeOpenAI(bad) as fake:
        expect_no_answer(await play(model_servers(fake)["vllm_model, completions"]))


@pytest.mark.fault(
    place="Model endpoint",
    fault="A reply holds half of a surrogate pair, or a number that no float holds",
    outcome="The rollout fails as `model_reply_invalid`, and is not tried again.",
)
@pytest.mark.parametrize("value", [rb'"\ud800"', b"1" * 400, b"1" * 5000])
async def test_a_reply_with_a_value_that_cannot_be_read_is_not_asked_for_again(value):
    whole = json.loads(response("half").body)
    unreadable = Reply(json.dumps({**whole, "metadata": "VALUE"}).encode().replace(b'"VALUE"', value))
    async with FakeOpenAI(default=unreadable) as fake:
        outcome = await play_rollout(World, model_servers(fake)["openai_model"])
        assert len(fake.received) == 1
    assert isinstance(outcome, Failed)
    assert (outcome.failure.kind, outcome.failure.retryable) == ("model_reply_invalid", False)


@pytest.mark.fault(
    place="Model server",
    fault="A model server that somebody else wrote passes on a reply that is no answer",
    outcome="The agent that reads it fails the rollout as `model_reply_invalid`.",
)
@pytest.mark.parametrize("fields", [{}, {"status": "queued"}, {"status": "cancelled"}, {"error": BOOM}])
async def test_an_agent_takes_no_reply_without_an_answer(fields):
    model = build_server(ScriptedModel, name="policy_model")
    model._replies.append(reply(*(["half"] if fields else []), **fields))
    expect_no_answer(await play(model))


@pytest.mark.parametrize("what", ANSWERS)
async def test_an_answer_that_is_short_or_cut_off_is_scored(what):
    async with FakeOpenAI(default=ANSWERS[what]) as fake:
        assert isinstance(await play(model_servers(fake)["openai_model"]), Scored)


async def test_a_thinking_model_that_says_nothing_else_is_scored():
    model = build_server(ScriptedModel, name="policy_model")
    model._replies.extend([reply(reasoning("hm"), status="completed")] * 3)
    assert isinstance(await play(model), Scored)


HI = [{"role": "user", "content": "hi"}]

# --- other readers ----------------------------------------------------------------------------------------------------


@pytest.mark.fault(
    place="Model server",
    fault="A streamed call gets a reply that is no answer",
    outcome="The stream ends with an event that says so, not as a completed answer.",
)
@pytest.mark.parametrize(
    ("path", "body", "bad", "end"),
    [
        ("/v1/responses", {"input": "hi"}, response(), "response.failed"),
        ("/v1/responses", {"input": "hi"}, response("half", status="queued"), "response.failed"),
        ("/v1/chat/completions", {"messages": HI}, chat("half", finish_reason="error"), "error"),
        ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": HI}, response(), "error"),
    ],
)
async def test_a_stream_without_an_answer_ends_as_a_failure(path, body, bad: Reply, end):
    async with FakeOpenAI(bad) as fake, running(policy_model=model_servers(fake)["openai_model"]) as client:
        streamed = await client.post("policy_model", path, json={**body, "stream": True})
        text = await streamed.text()
    assert "no answer" in text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert events[-1].get("type", "error" if "error" in events[-1] else None) == end


@pytest.mark.fault(
    place="Judge model",
    fault="The judge's reply is no answer",
    outcome="The rollout is `judge_failed`, to be judged again; it is not scored 0.",
)
async def test_a_judge_without_an_answer_has_judged_nothing():
    judge = build_server(ScriptedModel, name="judge")
    judge._replies.append(reply())
    async with running(judge=judge) as client:
        with pytest.raises(JudgeError, match="no answer: its output is empty"):
            await ask_judge(client, server_name="judge", messages=[], responses_create_params=asked("?"))
