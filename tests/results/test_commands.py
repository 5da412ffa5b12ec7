# SPDX-License-Identifier: Apache-2.0
"""The commands that read the files of a run."""

import subprocess
import sys

import pytest

from nemo_gym.cli.eval.files import AggregateConfig
from nemo_gym.cli.main import run_command
from nemo_gym.rollout_collection import RolloutAggregationConfig


def test_they_load_nothing_that_only_servers_and_models_need():
    code = "import nemo_gym.cli.eval.files, sys; print(*{'aiohttp', 'fastapi', 'asyncio', 'numpy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_aggregate_takes_what_the_contract_names():
    ours, theirs = AggregateConfig.model_fields, RolloutAggregationConfig.model_fields
    assert {name: field.default for name, field in theirs.items()} == {name: ours[name].default for name in theirs}


@pytest.mark.parametrize("merge", [True, False])
def test_aggregate_says_the_same_whether_it_merges_or_not(run, write, result, tmp_path, capsys, merge):
    run("a.jsonl", [[1.0, 0.0], [1.0, None]])
    write("b.jsonl", [result(5, 0, 0.5)])
    write("b_materialized_inputs.jsonl", [result(5, 0, None)])
    tokens = ["-i", f"{tmp_path}/?.jsonl", "-o", f"{tmp_path}/all.jsonl", f"+merge_shards={merge}"]
    assert run_command(["eval", "aggregate", *tokens]) == 0
    shown = capsys.readouterr().out
    assert "4 scored of 5 requested, 1 failed" in shown
    # Rewards 1, 0 | 1 | 1/2: mean 5/8. The tasks weigh 3/2, 3/4, 3/4, so their distances from it are -3/16, 9/32 and
    # -3/32, the standard error sqrt(0.123047 / 6), t(2) = 4.3027.
    [line] = [line.split() for line in shown.splitlines() if "mean/reward" in line]
    assert line[:3] == ["a", "mean/reward", "0.625"]
    assert [float(line[3]), float(line[5])] == pytest.approx([0.625 - 0.61617, 0.625 + 0.61617], abs=1e-3)
    assert line[6:] == ["3", "of", "3", "4", "of", "5"]
    assert (tmp_path / "all.jsonl").exists() == merge
    assert (tmp_path / "all_aggregate_metrics.json").exists()
