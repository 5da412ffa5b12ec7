# SPDX-License-Identifier: Apache-2.0
"""Run in an environment with verifiers: its traces have the branches that were exported, token by token."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

from verifiers.v1.trace import Trace

FOLDER = Path(sys.argv[1])


def read_lines(name):
    return (FOLDER / f"{name}.jsonl").read_text().splitlines()


for line, stored in zip(read_lines("prime-rl"), read_lines("trajectories"), strict=True):
    trace, record = Trace.model_validate_json(line), json.loads(stored)
    assert trace.reward == record["reward"]
    assert trace.ok
    assert len(trace.branches) == len(record["branches"])
    for branch, expected in zip(trace.branches, record["branches"], strict=True):
        before = len(expected["prompt_ids"])
        assert branch.token_ids == expected["prompt_ids"] + expected["completion_ids"]
        assert branch.sampled_mask == [False] * before + [bool(wrote) for wrote in expected["mask"]]
        assert branch.logprobs == [0.0] * before + expected["log_probs"]
        assert branch.trainable
print(f"verifiers {version('verifiers')}")
