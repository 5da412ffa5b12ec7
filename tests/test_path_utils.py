# SPDX-License-Identifier: Apache-2.0
"""The files beside a rollouts file."""

from pathlib import Path

import pytest

from nemo_gym import path_utils


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (path_utils.failures_path_for, "r_failures.jsonl"),
        (path_utils.materialized_inputs_path_for, "r_materialized_inputs.jsonl"),
        (path_utils.aggregate_metrics_path_for, "r_aggregate_metrics.json"),
        (path_utils.reward_profiling_path_for, "r_reward_profiling.jsonl"),
        (path_utils.agent_metrics_path_for, "r_agent_metrics.json"),
    ],
)
def test_a_sibling_has_the_stem_of_the_output(function, name):
    assert function("out/r.jsonl") == Path("out") / name
    assert function(Path("out/r.jsonl")) == Path("out") / name


def test_only_the_last_suffix_is_taken_off():
    assert path_utils.failures_path_for("run.v2.jsonl") == Path("run.v2_failures.jsonl")
