# SPDX-License-Identifier: Apache-2.0
"""Run by test_real_trainers.py with ART's Python: its trajectories hold our rollouts, token by token."""

import asyncio
import importlib.metadata
import math
import sys

import art
from art.trajectories import TokenFlag

from nemo_gym.integrations.art import build_groups
from nemo_gym.token_engine import ChatFormat, EngineReply, TokenSettings
from nemo_gym.trajectories import TrainableRollout
from tests.support.live_gym import make_engine, open_gym, read_task


async def main():
    row = read_task()
    engine = make_engine(row)

    async def generate(prompt_ids, limit):
        return EngineReply(*engine.write(prompt_ids, limit))

    async with open_gym() as gym:
        settings = TokenSettings(generate, ChatFormat(engine.tokenizer))
        played = [(await gym.play(row, settings)).result for _ in range(2)]
    failed = {"_ng_task_index": 0, "agent_ref": row["agent_ref"], "_ng_failure": {"kind": "timeout", "message": "late"}}
    [group] = build_groups([*played, failed], (3, 4))
    assert isinstance(group, art.TrajectoryGroup)
    assert [trajectory.reward for trajectory in group] == [1.0, 1.0]
    [exception] = group.exceptions
    assert exception.message == "timeout: late"
    for trajectory, result in zip(group, played, strict=True):
        branch = TrainableRollout.from_row(result).main_branch
        tokenized = trajectory.tokenize(model="student")
        assert tokenized.tokens == branch.ids
        expected = [math.nan] * len(branch.prompt_ids) + [
            value if by_model else math.nan for value, by_model in zip(branch.log_probs, branch.mask, strict=True)
        ]
        assert all(
            a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(tokenized.logprobs, expected, strict=True)
        )
        sampled = [int(bool(flag & TokenFlag.SAMPLED)) for flag in tokenized.flags]
        assert sampled == [0] * len(branch.prompt_ids) + branch.mask
        assert all(flag & TokenFlag.EXACT for flag in tokenized.flags)
        assert (trajectory.initial_policy_version, trajectory.final_policy_version) == (3, 4)
        assert art.Trajectory.model_validate_json(trajectory.model_dump_json()).reward == 1.0
    first = TrainableRollout.from_row(played[0])
    carrier = next(item for item in played[0]["response"]["output"] if item.get("prompt_token_ids"))
    carrier["prompt_token_ids"] = [1, *carrier["prompt_token_ids"]]
    [forked] = build_groups([played[0]])
    histories = forked.trajectories[0].tokenize(multi_history=True, model="student").histories
    tokens = [history.tokens for history in histories]
    assert sorted(tokens) == sorted(branch.ids for branch in TrainableRollout.from_row(played[0]).branches)
    version = importlib.metadata.version("openpipe-art")
    sys.stdout.write(f"\nopenpipe-art {version}: {len(first.turns)} turns, and two branches, exact\n")


asyncio.run(main())
