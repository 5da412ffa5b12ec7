# SPDX-License-Identifier: Apache-2.0
"""Parts of a run that are collected apart."""

import json

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._rollouts.expand import BadRows, ExpandSettings, expand, materialize
from nemo_gym._rollouts.run_manifest import Shard, describe_missing
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym.rollout_collection import RolloutCollectionConfig


def lines(tasks):
    rows = ({"responses_create_params": {"input": str(task)}} for task in range(tasks))
    return list(enumerate((json.dumps(row).encode() for row in rows), 1))


def planned(tasks, **settings):
    return list(expand(lines(tasks), ExpandSettings(agent_name="ann", **settings), "r.jsonl"))


@settings(deadline=None, max_examples=40)
@given(total=st.integers(1, 6), tasks=st.integers(0, 12), repeats=st.integers(1, 3), limit=st.integers(1, 12))
def test_shards_put_together_are_the_whole_plan_row_by_row(total, tasks, repeats, limit):
    shards = [Shard(number, total) for number in range(1, total + 1)]
    rows = [row for shard in shards for row in planned(tasks, repeats=repeats, limit=limit, shard=shard)]
    whole = planned(tasks, repeats=repeats, limit=limit)
    assert sorted(rows, key=lambda row: (row["_ng_task_index"], row["_ng_rollout_index"])) == whole


def test_a_row_that_cannot_be_played_stops_every_shard():
    with pytest.raises(BadRows):
        list(expand([*lines(1), (2, b"no json")], ExpandSettings(agent_name="ann", shard=Shard(1, 2)), "r.jsonl"))


def test_a_shard_without_a_task_is_an_error_that_says_why(tmp_path):
    with pytest.raises(BadRows, match=r"shard 3/3 of r\.jsonl holds no task.*\nhint: .*fewer shards"):
        materialize(
            lines(2), ExpandSettings(agent_name="ann", shard=Shard(3, 3)), "r.jsonl", RunPaths.of(tmp_path / "r.jsonl")
        )


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "-1/2", ""])
def test_a_shard_that_is_not_one_of_its_total_is_refused(text):
    with pytest.raises(ValueError, match="K from 1 to N, such as 1/4"):
        Shard.parse(text)


def test_runs_are_told_apart_by_their_shard_and_older_ones_have_none():
    config = {"input_jsonl_fpath": "i.jsonl", "output_jsonl_fpath": "o.jsonl"}
    assert RolloutCollectionConfig(**config, shard=" 2/ 3").identity()["shard"] == "2/3"
    assert "shard" not in RolloutCollectionConfig(**config).identity()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (["1/4", "3/4"], "shards 1, 3 of 4 were found; 2, 4 missing"),
        (["2/2", "1/2"], None),
        (["1/2", "2/3"], "these shards are cut in different ways, into 2 and 3 parts, so tasks may be missing"),
    ],
)
def test_missing_shards_are_named(found, said):
    assert describe_missing([*map(Shard.parse, found)]) == said
