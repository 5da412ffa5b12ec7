# SPDX-License-Identifier: Apache-2.0
"""Run in an environment with ART, Harbor and SkyRL: each reads what was exported for it."""

import json
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Dict, List, Optional, Union  # noqa: UP035  # names of SkyRL's definitions

import numpy
from art import TrajectoryGroup
from art.preprocessing.dynamo_tokens import choice_completion_logprobs
from art.utils.trajectory_logging import read_trajectory_groups_parquet, write_trajectory_groups_parquet
from definitions import take
from harbor.models.trajectories import Trajectory
from openai.types.chat.chat_completion import Choice
from pydantic import TypeAdapter
from typing_extensions import TypedDict

FOLDER = Path(sys.argv[1])


def read_lines(name):
    return (FOLDER / f"{name}.jsonl").read_text().splitlines()


def check_art():
    """Groups are what ART's own types take, and its own files bring the choices back with their tokens."""
    groups = [TrajectoryGroup.model_validate_json(line) for line in read_lines("art")]
    write_trajectory_groups_parquet(groups, FOLDER / "art.parquet")
    back = read_trajectory_groups_parquet(FOLDER / "art.parquet")
    assert [len(group.trajectories) for group in back] == [len(group.trajectories) for group in groups]
    assert [error.type for group in back for error in group.exceptions] == ["timeout"]
    for line, group in zip(read_lines("art"), back, strict=True):
        for stored, trajectory in zip(json.loads(line)["trajectories"], group.trajectories, strict=True):
            histories = [stored, *stored["additional_histories"]]
            expected = [one for each in histories for one in each["messages_and_choices"] if "finish_reason" in one]
            restored = [trajectory, *trajectory.additional_histories]
            choices = [one for each in restored for one in each.messages_and_choices if isinstance(one, Choice)]
            assert [one.model_extra["token_ids"] for one in choices] == [one["token_ids"] for one in expected]
            assert [choice_completion_logprobs(one) for one in choices] == [one["compact_logprobs"] for one in expected]
            assert trajectory.reward == stored["reward"]


def check_harbor():
    trajectories = [Trajectory.model_validate_json(line) for line in read_lines("atif")]
    assert any(call for one in trajectories for step in one.steps for call in step.tool_calls or [])


def check_skyrl():
    around = {"dataclass": dataclass, "TypedDict": TypedDict, "Any": Any}
    around |= {"Dict": Dict, "List": List, "Optional": Optional, "Union": Union}  # noqa: UP006
    # Tensors and routing are of no concern here: these fields are left out.
    around |= {"RoutedExpertIndices": Any, "SampleSupport": Any, "torch": type("torch", (), {"Tensor": Any})}
    trajectory_id, output = take("skyrl/train/generators/base.py", ["TrajectoryID", "GeneratorOutput"], **around)
    validate, *_ = take(
        "skyrl/train/utils/trainer_utils.py",
        ["validate_generator_output", "_validate_per_token_side_channels", "_validate_step_wise_fields"],
        np=numpy,
        GeneratorOutput=output,
        SAMPLE_SUPPORT_FIELD="rollout_sample_support",
    )
    for line in read_lines("skyrl"):
        group = json.loads(line)
        for name, value in group.items():
            TypeAdapter(output.__annotations__[name]).validate_python(value)
        group["trajectory_ids"] = [trajectory_id(**one) for one in group["trajectory_ids"]]
        validate(len(group["response_ids"]), group, step_wise=group["is_last_step"] is not None)


for check in (check_art, check_harbor, check_skyrl):
    check()
print(" ".join(f"{name} {version(name)}" for name in ("openpipe-art", "harbor", "skyrl")))
