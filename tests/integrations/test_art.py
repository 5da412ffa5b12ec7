# SPDX-License-Identifier: Apache-2.0
"""ART: rollouts become trajectories with exact tokens, failures become exceptions. With ART: test_real_trainers.py."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import BaseModel

from nemo_gym import global_config
from nemo_gym._util.jsonl_files import write_rows
from nemo_gym.integrations import art
from nemo_gym.integrations.live import LiveGymError
from nemo_gym.trajectories import TrainableRollout
from tests.integrations.test_live import settings_of
from tests.support.live_gym import AGENT, CONFIG, make_engine, open_gym, read_task


class LegacyHistory(BaseModel, extra="forbid"):
    messages_and_choices: list[Any]
    tools: list[Any] | None


class Trajectory(LegacyHistory):
    additional_histories: list[LegacyHistory]
    reward: float
    metrics: dict[str, float]
    metadata: dict[str, Any]
    initial_policy_version: int | None
    final_policy_version: int | None


class TrajectoryGroup:
    def __init__(self, trajectories, *, exceptions):
        self.trajectories, self.exceptions = list(trajectories), list(exceptions)


@pytest.fixture(autouse=True)
def fake_art(monkeypatch):
    modules = {"art": (Trajectory, TrajectoryGroup), "art.trajectories": (LegacyHistory,)}
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update({each.__name__: each for each in members})
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
async def played():
    """The row of a rollout of many turns, as a rollouts file has it."""
    row = {**read_task(), "_ng_task_index": 3, "_ng_rollout_index": 1}
    async with open_gym() as gym:
        return (await gym.play(row, settings_of(make_engine(row)))).result


def join_choices(items):
    """What ART trains on: each prompt continues all tokens so far."""
    tokens, mask, log_probs = [], [], []
    for item in items:
        if isinstance(item, dict):
            continue
        prompt, written = item.model_extra["prompt_token_ids"], item.model_extra["token_ids"]
        assert prompt[: len(tokens)] == tokens
        added = len(prompt) - len(tokens)
        tokens = [*prompt, *written]
        mask += [0] * added + [1] * len(written)
        log_probs += [0.0] * added + item.model_extra["compact_logprobs"]
    return tokens, mask, log_probs


async def test_a_rollout_is_a_conversation_whose_choices_carry_its_exact_tokens(played):
    made, branch = art.build_trajectory(played), TrainableRollout.from_row(played).main_branch
    tokens, mask, log_probs = join_choices(made.messages_and_choices)
    assert tokens == branch.ids
    assert mask == [0] * len(branch.prompt_ids) + branch.mask
    assert log_probs == [0.0] * len(branch.prompt_ids) + branch.log_probs
    roles = [item["role"] if isinstance(item, dict) else item.finish_reason for item in made.messages_and_choices]
    assert roles == ["user", *["tool_calls", "tool"] * 4, "stop"]
    assert made.messages_and_choices[1].message.tool_calls[0].function.name == "get_synonym_value"
    assert "prompt_token_ids" not in made.messages_and_choices[1].message.model_extra
    assert [tool["function"]["name"] for tool in made.tools] == ["get_synonym_value", "extract_synonym_values"]
    assert (made.reward, made.metrics) == (1.0, {"turns": 5, "branches": 1})
    assert made.metadata == {
        "agent": AGENT,
        "task_index": 3,
        "rollout_index": 1,
        "rollout_id": played["_ng_rollout_id"],
        "drift": "clean",
    }


async def test_versions_of_the_weights_are_those_of_the_row_or_else_those_given(played):
    made = art.build_trajectory(played, (7, 8))
    assert (made.initial_policy_version, made.final_policy_version) == (7, 8)
    for item in played["response"]["output"]:
        if item.get("prompt_token_ids"):
            item["policy_version"] = 5
    made = art.build_trajectory(played, (7, 8))
    assert (made.initial_policy_version, made.final_policy_version) == (5, 5)


async def test_a_branch_that_does_not_end_with_the_answer_is_a_history_beside(played):
    first = next(item for item in played["response"]["output"] if item.get("prompt_token_ids"))
    first["prompt_token_ids"] = [9, *first["prompt_token_ids"]]  # what the model read then, nobody has read since
    made = art.build_trajectory(played)
    [beside] = made.additional_histories
    tokens, mask, _ = join_choices(beside.messages_and_choices)
    assert tokens == [*first["prompt_token_ids"], *first["generation_token_ids"]]
    assert sum(mask) == len(first["generation_token_ids"])
    rollout = TrainableRollout.from_row(played)
    assert join_choices(made.messages_and_choices)[0] == rollout.main_branch.ids
    assert (made.metadata["drift"], made.metrics["branches"]) == ("forked", 2)


async def test_tokens_that_were_put_aside_are_choices_too(played):
    whole = TrainableRollout.from_row(played)
    names = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
    carriers = [item for item in played["response"]["output"] if item.get("prompt_token_ids")]
    records = [{name: item.pop(name) for name in names} for item in carriers]
    played["_ng_token_capture"] = {"records": records}
    assert join_choices(art.build_trajectory(played).messages_and_choices)[0] == whole.main_branch.ids


async def test_failed_members_of_a_group_are_exceptions_and_never_zeros(played):
    rows = [
        played,
        {**played, "reward": 0.0, "_ng_rollout_index": 2},
        {
            "_ng_task_index": 3,
            "agent_ref": played["agent_ref"],
            "_ng_failure": {"kind": "timeout", "message": "took too long"},
        },
        {**played, "mask_sample": True},
        {**played, "_ng_task_index": 4, "reward": float("nan")},
    ]
    first, second = art.build_groups(rows)
    assert [each.reward for each in first.trajectories] == [1.0, 0.0]
    assert [str(each) for each in first.exceptions] == [
        "timeout: took too long",
        "tokens_lost: the rollout must not be trained on: mask_sample",
    ]
    assert (second.trajectories, len(second.exceptions)) == ([], 1)


def test_groups_of_a_run_are_read_from_its_files(tmp_path):
    names = {"_ng_task_index": 1, "agent_ref": {"name": AGENT}}
    failures = tmp_path / "rollouts_failures.jsonl"
    write_rows(failures, [{**names, "_ng_rollout_index": 0, "_ng_failure": {"kind": "timeout", "message": "late"}}])
    [group] = art.read_groups(failures)
    assert (group.trajectories, [str(each) for each in group.exceptions]) == ([], ["timeout: late"])


# --- live -------------------------------------------------------------------------------------------------------------


def make_endpoint(row, asked, failing):
    """ART's inference endpoint, which is a vLLM: it sends the ids of every reply. Some models are `failing`."""
    engine = make_engine(row)

    async def complete(request):
        body = await request.json()
        asked.append((request.headers["Authorization"], body["model"]))
        if failing:
            raise web.HTTPBadRequest(text="no such model")
        text = engine.tokenizer.apply_chat_template(
            [{**each, "content": each["content"] or ""} for each in body["messages"]],
            tools=body["tools"],
            tokenize=False,
            add_generation_prompt=True,
        )
        prompt = engine.tokenizer.encode(text, add_special_tokens=False)
        ids, log_probs = engine.write(prompt)
        message = {"role": "assistant", "content": engine.tokenizer.decode(ids, skip_special_tokens=True)}
        content = [
            {"token": f"token_id:{each}", "logprob": value, "bytes": None, "top_logprobs": []}
            for each, value in zip(ids, log_probs, strict=True)
        ]
        choice = {"index": 0, "finish_reason": "stop", "message": message, "token_ids": ids}
        return web.json_response(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "prompt_token_ids": prompt,
                "choices": [{**choice, "logprobs": {"content": content}}],
            }
        )

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    return TestServer(app)


class Model(SimpleNamespace):
    step = 4

    def get_inference_name(self):
        return f"student@{self.step}"

    async def get_step(self):
        self.step += 1
        return self.step - 1


@pytest.mark.parametrize("failing", [False, True])
async def test_rows_are_played_by_the_endpoint_of_the_model(monkeypatch, failing):
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
    monkeypatch.setattr("sys.argv", ["train.py"])
    row, asked = read_task(), []
    async with make_endpoint(row, asked, failing) as endpoint:
        base_url = str(endpoint.make_url("/v1"))
        model = Model(name="student", inference_base_url=base_url, inference_api_key="key-1")
        groups = await art.gather(model, [row, row], [CONFIG], repeats=2, parallel=3)
    assert len(groups) == 2
    assert set(asked) == {("Bearer key-1", "student@4")}
    for group in groups:
        assert (len(group.trajectories), len(group.exceptions)) == ((0, 2) if failing else (2, 0))
        for made in group.trajectories:
            assert made.reward == 0.0, "it only talks of tools, and calls none"
            assert (made.initial_policy_version, made.final_policy_version) == (4, 5)
            assert len(join_choices(made.messages_and_choices)[0]) > 10


async def test_a_model_without_an_endpoint_is_told_what_to_do():
    model = SimpleNamespace(name="student", inference_base_url=None, inference_api_key=None)
    with pytest.raises(LiveGymError, match=r"hint: `await model\.register"):
        await art.gather(model, [], [])
