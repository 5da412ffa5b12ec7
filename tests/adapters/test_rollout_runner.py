# SPDX-License-Identifier: Apache-2.0
"""Runners that own their whole loop: what is kept of their calls, and how they fail."""

import asyncio
import math
from typing import Any

import anthropic
import openai
import pytest
from fastapi import HTTPException

from nemo_gym.adapters.rollout_runner import ModelEndpoint, RolloutRunner, RunnerResult, read_sampling
from nemo_gym.base_responses_api_model import Body, SimpleResponsesAPIModel
from nemo_gym.errors import RolloutFailure
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.session_client import SessionClient
from nemo_gym.testing import message, reply
from tests.support.served_run import ServedRun, serve_run

ROW = {"responses_create_params": {"input": [], "temperature": 0.5}, "question": "1+1?"}
BLOCK = {"model_server": {"type": "responses_api_models", "name": "policy_model"}}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


class CountingModel(SimpleResponsesAPIModel):
    """Says how many messages it was shown, and gives tokens."""

    def _make_tokens(self, count: int) -> dict[str, Any]:
        return {
            "prompt_token_ids": [1] * count,
            "generation_token_ids": [100 + count],
            "generation_log_probs": [-0.5],
        }

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        count = len(body.input)
        item = {**message(f"{count} items").model_dump(), **self._make_tokens(count)}
        return NeMoGymResponse.model_validate({**reply().model_dump(), "output": [item]})

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        if "boom" in str(body.messages):
            raise HTTPException(400, "boom")
        said = {"role": "assistant", "content": f"{len(body.messages)} items", **self._make_tokens(len(body.messages))}
        choice = {"index": 0, "finish_reason": "stop", "message": said}
        given = {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        return NeMoGymChatCompletion.model_validate({**given, "usage": USAGE})


class Runner(RolloutRunner):
    """Plays what a test tells it to."""

    async def play(self, task: dict[str, Any], model: ModelEndpoint) -> RunnerResult:
        raise NotImplementedError


def client_at(model: ModelEndpoint) -> openai.AsyncOpenAI:
    http = openai.DefaultAsyncHttpxClient(verify=False, trust_env=False)
    return openai.AsyncOpenAI(base_url=model.base_url, api_key=model.api_key, max_retries=0, http_client=http)


async def ask(model: ModelEndpoint, *texts: str, stream: bool = False) -> str:
    """Ask with a history in which user and model take turns."""
    messages: Any = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]
    async with client_at(model) as client:
        answer = await client.chat.completions.create(model=model.model, messages=messages, stream=stream)
        if not stream:
            return answer.choices[0].message.content
        return "".join([chunk.choices[0].delta.content or "" async for chunk in answer if chunk.choices])


async def play(monkeypatch, how, **config) -> Any:
    """Play one rollout as `how` says; return its row."""
    monkeypatch.setattr(Runner, "play", lambda runner, task, model: how(task, model))
    async with serve_run(monkeypatch, policy_model=CountingModel, runner=(Runner, {**BLOCK, **config})) as run:
        answer = await run.client.post("runner", "/run", json={**ROW, "_ng_task_index": 3, "_ng_rollout_index": 0})
        told = await answer.json()
        assert await list_sessions(run) == []
        if answer.status == 200:
            return told
        raise AssertionError((answer.status, answer.headers.get("x-nemo-gym-failure")))


async def fail(monkeypatch, how, **config) -> str:
    """Play one rollout that fails; return how."""
    with pytest.raises(AssertionError) as caught:
        await play(monkeypatch, how, **config)
    return str(caught.value)


async def list_sessions(run: ServedRun) -> list[Any]:
    return (await SessionClient(client=run.client)._call("GET", ""))["sessions"]


def texts_of(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (item["role"], item["content"] if isinstance(item["content"], str) else item["content"][0]["text"])
        for item in row["response"]["output"]
    ]


async def test_a_row_holds_all_turns_of_the_conversation_with_tokens_and_usage(monkeypatch):
    async def two_turns(task, model):
        first = await ask(model, task["question"])
        await ask(model, task["question"], first, "sure?", stream=True)
        return RunnerResult(0.5, components={"a": 0.5}, metrics={"turns": 2}, info={"why": "so"})

    row = await play(monkeypatch, two_turns)
    assert texts_of(row) == [("assistant", "1 items"), ("user", "sure?"), ("assistant", "3 items")]
    said = [item for item in row["response"]["output"] if item["role"] == "assistant"]
    assert [item["generation_token_ids"] for item in said] == [[101], [103]]
    assert [item["prompt_token_ids"] for item in said] == [[1], [1, 1, 1]]
    assert [part["content"] for part in row["responses_create_params"]["input"]] == ["1+1?"]
    assert row["response"]["usage"]["total_tokens"] == 10
    assert (row["reward"], row["reward_components"], row["question"]) == (0.5, {"a": 0.5}, "1+1?")
    assert (row["model_calls"], row["runner_metrics"], row["runner_info"]) == (2, {"turns": 2.0}, {"why": "so"})


async def test_calls_beside_the_conversation_count_but_are_no_part_of_it(monkeypatch):
    async def with_side_calls(task, model):
        await ask(model, "Give this a title")
        first = await ask(model, "a")
        await ask(model, "Is this safe?")
        await ask(model, "a", first, "b")
        await ask(model, "Summarize")
        return RunnerResult(1.0)

    row = await play(monkeypatch, with_side_calls)
    assert texts_of(row) == [("assistant", "1 items"), ("user", "b"), ("assistant", "3 items")]
    assert (row["model_calls"], row["response"]["usage"]["total_tokens"]) == (5, 25)


async def test_what_the_model_said_is_kept_although_the_runner_rewrites_it(monkeypatch):
    async def rewrite(task, model):
        await ask(model, "a")
        await ask(model, "a", "(left out)", "b")
        return RunnerResult(1.0)

    row = await play(monkeypatch, rewrite)
    assert texts_of(row) == [("assistant", "1 items"), ("user", "b"), ("assistant", "3 items")]


async def test_examples_in_a_prompt_are_not_what_the_model_said(monkeypatch):
    async def few_shot(task, model):
        await ask(model, "1+2?", "3", "1+1?")
        return RunnerResult(1.0)

    row = await play(monkeypatch, few_shot)
    assert texts_of(row) == [("assistant", "3 items")]
    assert len(row["responses_create_params"]["input"]) == 3


async def test_runners_may_speak_the_other_dialects(monkeypatch):
    async def responses(task, model):
        async with client_at(model) as client:
            first = await client.responses.create(
                model="m", instructions="Count.", input=[{"role": "user", "content": "a"}]
            )
            said = [item.model_dump() for item in first.output]
            tail: Any = [{"role": "user", "content": "a"}, *said, {"role": "user", "content": "b"}]
            await client.responses.create(model="m", instructions="Count.", input=tail)
        return RunnerResult(1.0)

    async def messages(task, model):
        http = anthropic.DefaultAsyncHttpxClient(verify=False, trust_env=False)
        base_url = model.base_url.removesuffix("/v1")
        async with anthropic.AsyncAnthropic(base_url=base_url, api_key=model.api_key, http_client=http) as client:
            asked: Any = [{"role": "user", "content": "a"}]
            first = await client.messages.create(model="m", max_tokens=9, messages=asked)
            asked += [{"role": "assistant", "content": first.content[0].text}, {"role": "user", "content": "b"}]
            async with client.messages.stream(model="m", max_tokens=9, messages=asked) as events:
                await events.get_final_text()
        return RunnerResult(1.0)

    for how, instructions in ((responses, "Count."), (messages, None)):
        row = await play(monkeypatch, how)
        assert texts_of(row) == [("assistant", "1 items"), ("user", "b"), ("assistant", "3 items")]
        assert row["responses_create_params"].get("instructions") == instructions
        assert row["response"]["output"][-1]["generation_token_ids"] == [103]


async def test_a_reward_without_a_model_call_is_a_failure(monkeypatch):
    async def idle(task, model):
        return RunnerResult(1.0)

    failure = await fail(monkeypatch, idle)
    assert '"kind": "agent"' in failure
    assert "none of its calls reached the model" in failure


async def test_what_a_runner_raises_is_the_failure_with_its_place(monkeypatch):
    async def broken(task, model):
        await ask(model, "a")
        raise KeyError("seed")

    failure = await fail(monkeypatch, broken)
    assert '"kind": "agent"' in failure
    assert "KeyError" in failure
    assert "in broken" in failure


async def test_a_failure_that_the_runner_names_stays_what_it_is(monkeypatch):
    async def named(task, model):
        raise RolloutFailure("verifier", "no judge", True)

    failure = await fail(monkeypatch, named)
    assert '"kind": "verifier"' in failure
    assert '"retryable": true' in failure


@pytest.mark.parametrize("swallows", [True, False])
async def test_a_model_that_fails_is_what_the_failure_names(monkeypatch, swallows):
    async def stumble(task, model):
        try:
            await ask(model, "boom")
        except openai.APIError:
            if not swallows:
                raise
        return RunnerResult(0.0)

    failure = await fail(monkeypatch, stumble)
    assert '"kind": "model_endpoint"' in failure
    assert "boom" in failure or "status 400" in failure


@pytest.mark.parametrize("number", [math.nan, math.inf, None, True, "1"])
async def test_a_reward_that_is_no_number_is_a_failure(monkeypatch, number):
    async def score(task, model):
        await ask(model, "a")
        return RunnerResult(number)

    failure = await fail(monkeypatch, score)
    assert '"kind": "verifier"' in failure
    assert "not a finite number" in failure


async def test_a_runner_that_hangs_fails_by_its_deadline_even_if_it_will_not_be_cancelled(monkeypatch):
    monkeypatch.setattr("nemo_gym.adapters.playing._CANCEL_GRACE_S", 0.01)
    release = asyncio.Event()

    async def hang(task, model):
        await ask(model, "a")
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    failure = await fail(monkeypatch, hang, rollout_timeout_s=0.2)
    release.set()
    assert '"kind": "timeout"' in failure
    assert "rollout_timeout_s" in failure


async def test_calls_after_the_end_of_a_rollout_are_refused(monkeypatch):
    given: list[ModelEndpoint] = []

    async def remember(task, model):
        given.append(model)
        await ask(model, "a")
        return RunnerResult(1.0)

    monkeypatch.setattr(Runner, "play", lambda runner, task, model: remember(task, model))
    async with serve_run(monkeypatch, policy_model=CountingModel, runner=(Runner, BLOCK)) as run:
        assert (await run.client.post("runner", "/run", json=ROW)).status == 200
        with pytest.raises(openai.ConflictError, match="was deleted"):
            await ask(given[0], "b")


def test_metrics_are_the_means_of_components_and_of_what_the_runner_measured():
    rows = [{"reward_components": {"a": 1.0}, "runner_metrics": {"turns": 2}}, {"runner_metrics": {"turns": 4}}]
    agent = Runner.model_construct()
    assert agent.compute_metrics([rows]) == {"mean/reward_components/a": 1.0, "mean/runner_metrics/turns": 3.0}


def test_sampling_settings_of_a_row_get_the_names_of_chat():
    params = {"input": [], "temperature": 0.0, "max_output_tokens": 9, "top_p": None}
    assert read_sampling({"responses_create_params": params}) == {"temperature": 0.0, "max_tokens": 9}
