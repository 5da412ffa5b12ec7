# SPDX-License-Identifier: Apache-2.0
"""What subclasses of the collection helpers override, and what a collection says of wrong settings."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from pydantic import ValidationError

from nemo_gym.rollout_collection import (
    RolloutAggregationConfig,
    RolloutAggregationHelper,
    RolloutCollectionConfig,
)
from nemo_gym.server_utils import ServerClient


def collection(tmp_path: Path, **settings: Any) -> RolloutCollectionConfig:
    (tmp_path / "in.jsonl").write_text('{"responses_create_params": {"input": "hi"}}\n')
    files = {"input_jsonl_fpath": str(tmp_path / "in.jsonl"), "output_jsonl_fpath": str(tmp_path / "out.jsonl")}
    return RolloutCollectionConfig(**files, agent_name="agent", **settings)


def test_no_number_of_repeats_is_one(tmp_path: Path) -> None:
    assert collection(tmp_path, num_repeats=None).num_repeats == 1
    assert collection(tmp_path, num_repeats={"agent": 2, "_default": 1}).num_repeats == {"agent": 2, "_default": 1}


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "many"])
def test_a_wrong_number_of_repeats_is_named(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ValidationError, match="num_repeats must be"):
        collection(tmp_path, num_repeats=wrong)


@pytest.mark.parametrize("wrong", [{"agent": 0}, {"agent": 2, "_default": "many"}])
def test_a_wrong_number_of_repeats_of_one_agent_is_named(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ValidationError, match="num_repeats dict values"):
        collection(tmp_path, num_repeats=wrong)


def silent_client() -> Any:
    """A client of servers that do not know any agent."""
    client = MagicMock(spec=ServerClient)
    client.global_config_dict = {}
    return client


def write_shards(tmp_path: Path) -> list[dict[str, Any]]:
    rows = [
        {"_ng_task_index": task, "_ng_rollout_index": 0, "agent_ref": {"name": "a"}, "reward": float(task)}
        for task in (1, 0)
    ]
    for row in rows:
        (tmp_path / f"part{row['_ng_task_index']}.jsonl").write_text(json.dumps(row) + "\n")
    return rows[::-1]


async def test_a_subclass_says_where_the_servers_are_and_what_metrics_come_to(tmp_path: Path) -> None:
    seen = []

    class Helper(RolloutAggregationHelper):
        async def _call_aggregate_metrics(self, results: Any, rows: Any, output_fpath: Any) -> Any:
            seen.append((results, rows, Path(output_fpath)))

    expected = write_shards(tmp_path)
    config = RolloutAggregationConfig(input_glob=f"{tmp_path}/part*", output_jsonl_fpath=str(tmp_path / "all.jsonl"))
    assert await Helper().run_from_config(config) == expected
    assert seen == [(expected, [], tmp_path / "all.jsonl")]
    assert [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()] == expected


@pytest.mark.parametrize("merge", [True, False])
async def test_shards_become_one_file_with_metrics(tmp_path: Path, merge: bool) -> None:
    class Helper(RolloutAggregationHelper):
        def setup_server_client(self, head_server_config: Any = None) -> Any:
            return silent_client()

    write_shards(tmp_path)
    output = tmp_path / "all.jsonl"
    pattern = f"{tmp_path}/part0.jsonl,{tmp_path}/part1.jsonl"
    await Helper().run_from_config(
        RolloutAggregationConfig(input_glob=pattern, output_jsonl_fpath=str(output), merge_shards=merge)
    )
    assert output.exists() is merge
    (metrics,) = json.loads((tmp_path / "all_aggregate_metrics.json").read_text())
    assert metrics["key_metrics"]["mean/reward"] == 0.5
