# SPDX-License-Identifier: Apache-2.0
"""What follows a run, from its files alone."""

import json
import sys
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym._rollouts.run_manifest import Counts, InputIdentity, Manifest, Shard, write_manifest
from nemo_gym.cli import legacy
from nemo_gym.cli.main import run_command


@pytest.fixture(autouse=True)
def own_argv(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gym"])


def write_run(folder: Path, name: str, rewards: list[list[float]], first_task: int = 0) -> Path:
    """A run of one agent: `rewards` by task and rollout."""
    plan, rollouts = [], []
    for task, of_task in enumerate(rewards, first_task):
        for rollout, reward in enumerate(of_task):
            row = {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "a"}, "question": task}
            plan.append({**row, "responses_create_params": {"input": str(task)}})
            rollouts.append({**row, "reward": reward, "response": {"usage": {"input_tokens": 2}}})
    (folder / f"{name}_materialized_inputs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plan))
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rollouts))
    return path


def test_shards_are_merged_in_order_and_aggregated(tmp_path, capsys):
    write_run(tmp_path, "b", [[1, 0]], first_task=1)
    write_run(tmp_path, "a", [[1, 1]])
    assert (
        run_command(["eval", "aggregate", "-i", f"{tmp_path}/[ab].jsonl", "-o", f"{tmp_path}/all.jsonl", "--json"]) == 0
    )
    summary = json.loads(capsys.readouterr().out)
    merged = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in merged] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert summary["counts"]["scored"] == summary["counts"]["requested"] == 4
    assert summary["agents"][0]["key_metrics"]["mean/reward"] == 0.75


def write_shard(folder: Path, number: int, total: int, rewards: list[list[float]], sha256: str = "0") -> None:
    """What `--shard` leaves of a run with these rewards."""
    whole = write_run(folder, "whole", rewards)
    for path in (whole, whole.with_name("whole_materialized_inputs.jsonl")):
        mine = [line for line in path.read_text().splitlines(True) if Shard(number, total).holds(task_of(line))]
        path.with_name(path.name.replace("whole", f"shard{number}")).write_text("".join(mine))
    identity = InputIdentity(path="t.jsonl", size_bytes=1, sha256=sha256)
    manifest = Manifest(counts=Counts(requested=1), input=identity, settings={"shard": f"{number}/{total}"})
    write_manifest(folder / f"shard{number}_run.json", manifest)


def task_of(line: str) -> int:
    return json.loads(line)["_ng_task_index"]


def aggregated(folder: Path, pattern: str) -> str:
    assert run_command(["eval", "aggregate", "-i", f"{folder}/{pattern}", "-o", f"{folder}/all.jsonl"]) == 0
    return (folder / "all_aggregate_metrics.json").read_text()


def test_all_shards_of_a_run_have_its_metrics(tmp_path, capsys):
    rewards = [[1, 0], [0, 0], [1, 1], [0.5, 1], [0, 1]]
    for number in (1, 2, 3):
        write_shard(tmp_path, number, 3, rewards)
    assert aggregated(tmp_path, "shard?.jsonl") == aggregated(tmp_path, "whole.jsonl")
    assert capsys.readouterr().err == ""


def test_shards_that_are_missing_or_do_not_belong_together_are_named(tmp_path, capsys):
    write_shard(tmp_path, 1, 4, [[1]] * 8)
    write_shard(tmp_path, 3, 4, [[1]] * 8, sha256="1")
    aggregated(tmp_path, "shard?.jsonl")
    said = capsys.readouterr().err
    assert "warning: shards 1, 3 of 4 were found; 2, 4 missing" in said
    assert "warning: these shards are of different inputs" in said


def test_a_rollout_that_is_in_two_shards_is_an_error(tmp_path, capsys):
    write_run(tmp_path, "a", [[1]])
    write_run(tmp_path, "b", [[0]])
    assert run_command(["eval", "aggregate", "-i", f"{tmp_path}/[ab].jsonl", "-o", f"{tmp_path}/all.jsonl"]) == 1
    said = capsys.readouterr().err
    assert "a.jsonl" in said
    assert "`gym eval run --shard 1/N`" in said
    assert not (tmp_path / "all.jsonl").exists()


def test_a_profile_has_a_line_for_every_task(tmp_path, capsys):
    rollouts = write_run(tmp_path, "r", [[1, 0], [1, 1]])
    assert run_command(["eval", "profile", "--rollouts", str(rollouts), "--pass-threshold", "1"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "r_reward_profiling.jsonl").read_text().splitlines()]
    assert [line["mean/reward"] for line in lines] == [0.5, 1.0]
    assert "4 scored of 4 requested" in capsys.readouterr().out


def test_a_profile_shows_its_tasks_and_gives_them_as_json(tmp_path, capsys):
    rollouts = write_run(tmp_path, "r", [[1, 1], [1, 0], [0, 0]])
    assert run_command(["eval", "profile", "--rollouts", str(rollouts)]) == 0
    said = capsys.readouterr().out
    assert said.index("tasks, hardest first") < said.index("most mixed tasks") < said.index("r_reward_profiling.jsonl")
    assert run_command(["eval", "profile", "--rollouts", str(rollouts), "--json"]) == 0
    ranking = json.loads(capsys.readouterr().out)["ranking"]
    assert [one["task"] for one in ranking["hardest"]] == [2, 1, 0]
    assert [one["task"] for one in ranking["easiest"]] == [0, 1, 2]
    assert [one["task"] for one in ranking["most_mixed"]] == [1]
    assert ranking["histogram"]["counts"] == [3, 3]


def test_the_legacy_profile_writes_tasks_with_their_statistics(tmp_path, capsys, monkeypatch):
    rollouts = write_run(tmp_path, "r", [[1, 0], [1, 1]])
    tasks, output = tmp_path / "tasks.jsonl", tmp_path / "profiled.jsonl"
    tasks.write_text('{"question": "x"}\n{"question": "y"}\n')
    argv = [
        "ng_profile",
        f"+input_jsonl_fpath={tasks}",
        f"+rollouts_jsonl_fpath={rollouts}",
        f"+output_jsonl_fpath={output}",
        "+pass_threshold=1.0",
    ]
    monkeypatch.setattr(sys, "argv", argv)
    assert legacy.run_alias() == 0
    first, second = (json.loads(line) for line in output.read_text().splitlines())
    assert first["question"] == "x"
    assert (first["avg_reward"], first["std_reward"], first["min_reward"], first["max_reward"]) == (0.5, 0.5, 0, 1)
    assert (first["total_samples"], first["pass_rate"], first["pass_rate_passed"]) == (2, 0.5, 1)
    assert second["pass_rate"] == 1.0
    said = capsys.readouterr()
    assert "deprecated" in said.err
    first_line, *tables = said.out.splitlines()
    assert first_line == f"Profiled 2 tasks from 4 rollouts: {output}"
    assert "0     2  0.5          50%              x" in tables


def test_runs_are_compared_task_by_task(tmp_path, capsys):
    old = write_run(tmp_path, "old", [[0, 0], [1, 1], [0, 0]])
    new = write_run(tmp_path, "new", [[1, 1], [1, 1], [0, 0]])
    assert run_command(["eval", "compare", str(old), str(new), "--json"]) == 0
    (comparison,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert (comparison["wins"], comparison["losses"], comparison["ties"]) == (1, 0, 2)
    assert comparison["difference"] == pytest.approx(1 / 3)
    assert run_command(["eval", "compare", str(old), str(new)]) == 0
    assert "6 of 6" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["eval", "aggregate"], ["eval", "profile"]])
def test_what_is_missing_is_named_with_its_override(command, capsys):
    assert run_command(command) == 2
    assert "missing required configuration" in capsys.readouterr().err


def test_stored_responses_are_scored_again(gym, tmp_path, unused_tcp_port):
    data = PARENT_DIR / "resources_servers" / "example_multi_step" / "data"
    rollouts = tmp_path / "r.jsonl"
    rows = [json.loads(line) for line in (data / "example_rollouts.jsonl").read_text().splitlines()]
    rollouts.write_text("".join(json.dumps({**row, "reward": 0.0}) + "\n" for row in rows))
    keys = ("_ng_task_index", "_ng_rollout_index", "agent_ref")
    inputs = [json.loads(line) for line in (data / "example.jsonl").read_text().splitlines()]
    plan = [{**inputs[row["_ng_task_index"]], **{key: row[key] for key in keys}} for row in rows]
    (tmp_path / "r_materialized_inputs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plan))
    arguments = [
        "eval",
        "reverify",
        "--resources-server",
        "example_multi_step",
        "--model-type",
        "replay_model",
        "++policy_model.responses_api_models.replay_model.replies=[unused]",
        f"++head_server.port={unused_tcp_port}",
        "--rollouts",
        str(rollouts),
        "-o",
        str(tmp_path / "again.jsonl"),
    ]
    said = gym(*arguments)
    assert said.code == 0, said.err
    again = [json.loads(line) for line in (tmp_path / "again.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in again] == [1.0] * len(rows)
