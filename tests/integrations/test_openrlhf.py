# SPDX-License-Identifier: Apache-2.0
"""OpenRLHF: its engine plays, and its trainer gets exact tokens and rewards. With OpenRLHF: test_real_trainers.py."""

import sys
from types import ModuleType, SimpleNamespace
from unittest.mock import AsyncMock

import httpx
import pytest
from fastapi import HTTPException

from nemo_gym.errors import RolloutFailure
from nemo_gym.integrations import openrlhf
from nemo_gym.integrations.live import LiveGym, LiveGymError, write_row
from nemo_gym.integrations.openrlhf import build_reward_app, cut_answer
from nemo_gym.testing import agent_config, running
from resources_servers.string_match.app import StringMatchResourcesServer, StringMatchVerifyRequest
from responses_api_agents.simple_agent.app import SimpleAgent
from tests.integrations.test_live import FAILURES, FailsTwice
from tests.integrations.test_scoring import QUIZ
from tests.support.live_gym import check_sequence, make_engine, open_gym, read_task


class Engine:
    """Calls a scripted engine as OpenRLHF calls vLLM."""

    def __init__(self, engine):
        self.engine, self.limits = engine, []

    async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
        self.limits.append(sampling_params.max_tokens)
        ids, log_probs = self.engine.write(prompt_token_ids, sampling_params.max_tokens)
        chosen = [{each: SimpleNamespace(logprob=value)} for each, value in zip(ids, log_probs, strict=True)]
        output = SimpleNamespace(
            token_ids=tuple(ids),
            logprobs=None if sampling_params.logprobs is None else chosen,
            finish_reason="length" if len(ids) == sampling_params.max_tokens else "stop",
        )
        return SimpleNamespace(outputs=[output])


@pytest.fixture
def executor(monkeypatch):
    """The class of an agent file, on a stand-in for OpenRLHF's base class."""

    class AgentExecutorBase:
        pass

    for name in ("openrlhf", "openrlhf.utils", "openrlhf.utils.agent"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["openrlhf.utils.agent"].AgentExecutorBase = AgentExecutorBase
    openrlhf._build_own_executor.cache_clear()
    yield openrlhf.build_agent_executor(["a.yaml"], ["++b=1"], attempts=2)
    openrlhf._build_own_executor.cache_clear()


async def execute(monkeypatch, executor, engine, environment=None, max_length=4000, logprobs=1, max_tokens=None):
    llm_engine = Engine(engine)
    sampling = SimpleNamespace(max_tokens=max_tokens, logprobs=logprobs)
    async with open_gym(*([environment] if environment else [])) as gym:
        of_process = AsyncMock(return_value=gym)
        monkeypatch.setattr(LiveGym, "of_process", of_process)
        response = await executor().execute(
            "the prompt", write_row(read_task()), sampling, max_length, engine.tokenizer, llm_engine
        )
    of_process.assert_awaited_once_with(["a.yaml"], ["++b=1"])
    assert sampling.max_tokens == max_tokens, "the trainer uses the same object for other samples"
    return response, llm_engine


async def test_a_sample_is_the_exact_sequence_of_a_rollout(monkeypatch, executor):
    engine = make_engine(read_task())
    response, llm_engine = await execute(monkeypatch, executor, engine)
    tokens, prompt = response["observation_tokens"], response["action_ranges"][0][0]
    mask = [0] * len(tokens)
    for start, end in response["action_ranges"]:
        mask[start:end] = [1] * (end - start)
    assert len(response["rollout_log_probs"]) == len(tokens)
    assert not any(response["rollout_log_probs"][:prompt])
    check_sequence(engine, tokens[:prompt], tokens[prompt:], mask[prompt:], response["rollout_log_probs"][prompt:])
    assert len(response["action_ranges"]) == len(engine.calls)
    assert (response["reward"], response["scores"], response["truncated"]) == (1.0, 1.0, False)
    assert (response["prompt"], response["label"]) == ("the prompt", write_row(read_task()))
    assert llm_engine.limits[0] == 4000 - prompt


async def test_a_sequence_is_no_longer_than_the_trainer_allows(monkeypatch, executor):
    engine = make_engine(read_task())
    length = len(engine.tokenizer.encode(str(read_task()["responses_create_params"]), add_special_tokens=False)) + 200
    response, llm_engine = await execute(
        monkeypatch, executor, engine, max_length=length, max_tokens=100, logprobs=None
    )
    assert len(response["observation_tokens"]) <= length
    assert response["truncated"] is True
    assert response["rollout_log_probs"] is None
    assert max(llm_engine.limits) == 100


async def test_a_rollout_that_keeps_failing_raises(monkeypatch, executor):
    FAILURES.clear()
    with pytest.raises(RolloutFailure, match="not yet"):
        await execute(monkeypatch, executor, make_engine(read_task()), FailsTwice)


async def test_a_label_without_a_row_is_refused(executor):
    with pytest.raises(LiveGymError, match="the label of a sample holds no row"):
        await executor().execute("", "42", SimpleNamespace(logprobs=None), 10, None, None)


def test_our_module_is_an_agent_file_too(executor, monkeypatch):
    asked = []
    monkeypatch.setattr(openrlhf, "build_agent_executor", lambda paths: asked.append(paths) or executor)
    monkeypatch.setenv("NEMO_GYM_LIVE_CONFIG_PATHS", "a.yaml,b.yaml")
    assert openrlhf.AgentExecutor is executor
    assert asked == [["a.yaml", "b.yaml"]]


# --- the reward endpoint ----------------------------------------------------------------------------------------------


class Judge(StringMatchResourcesServer):
    """Refuses to score what it does not understand."""

    async def verify(self, body: StringMatchVerifyRequest):
        if "nonsense" in str(body.response.output):
            raise HTTPException(500, "what is this?")
        return await super().verify(body)


async def ask(monkeypatch, answers, labels=None, prompts=None):
    servers = {"quiz": Judge, "quiz_agent": (SimpleAgent, agent_config("quiz"))}
    async with running(**servers) as client:
        monkeypatch.setattr(openrlhf, "connect", AsyncMock(return_value=client))
        transport = httpx.ASGITransport(app=build_reward_app("here:1"))
        async with httpx.AsyncClient(transport=transport, base_url="http://rewards") as trainer:
            body = {
                "query": [f"<|im_start|>Say yes.{answer}" for answer in answers],
                "prompts": prompts or ["<|im_start|>Say yes."] * len(answers),
                "labels": labels or [write_row(QUIZ)] * len(answers),
            }
            return await trainer.post("/get_reward", json=body)


async def test_a_batch_gets_its_rewards_in_order(monkeypatch):
    reply = await ask(monkeypatch, [r"\boxed{yes}<|im_end|>", r"\boxed{no}", r"\boxed{yes}</s>"])
    assert reply.json() == {"rewards": [1.0, 0.0, 1.0], "scores": [1.0, 0.0, 1.0], "extra_logs": {}}


async def test_an_answer_that_nobody_can_score_fails_its_batch(monkeypatch):
    reply = await ask(monkeypatch, [r"\boxed{yes}", "nonsense"])
    assert reply.status_code == 503
    assert "what is this?" in reply.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"labels": ["42"]}, "labels[0] holds no row"),
        ({"prompts": ["Another"]}, "does not begin with its prompt"),
        ({"prompts": ["a", "b"]}, "of equal length"),
    ],
)
async def test_a_batch_that_makes_no_sense_is_refused(monkeypatch, change, said):
    reply = await ask(monkeypatch, [r"\boxed{yes}"], **change)
    assert reply.status_code == 422
    assert said in reply.text


def test_an_answer_is_what_follows_the_prompt_without_the_end_of_turn():
    assert cut_answer("Q: a<|im_end|>\n<|endoftext|>", "Q: ") == "a"
    assert cut_answer("Q: a < b", "Q: ") == "a < b"


def test_the_command_serves_where_it_is_told(monkeypatch):
    served = {}
    monkeypatch.setattr("uvicorn.run", lambda app, **where: served.update(where, title=app.title))
    openrlhf.main(["--port", "5001", "--head-server", "127.0.0.1:11000"])
    assert (served["host"], served["port"]) == ("127.0.0.1", 5001)
