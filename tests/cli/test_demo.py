# SPDX-License-Identifier: Apache-2.0
"""`gym demo`: a real model, real scores, plain transcripts; and every flag wins over what the demo fills in."""

import json
import subprocess
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym.cli import demo
from nemo_gym.cli.flags import UsageError
from nemo_gym.testing import reply
from tests.support import warm_start

REPLIES = "++policy_model.responses_api_models.replay_model.replies=[Tokyo]"


def gym_demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return warm_start.run(["demo", *arguments], cwd=folder, timeout=500)


def said(rollouts: Path) -> dict[tuple[int, int], str]:
    """What the model said in every rollout."""
    rows = [json.loads(line) for line in rollouts.read_text().splitlines()]
    return {
        (row["_ng_task_index"], row["_ng_rollout_index"]): row["response"]["output"][0]["content"][0]["text"]
        for row in rows
    }


def rollout(task, reward, text="Paris", index=0):
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": index,
        "reward": reward,
        "category": "capitals",
        "responses_create_params": {"input": [{"role": "user", "content": "Capital of France?"}]},
        "response": reply(text).model_dump(),
    }


@pytest.mark.slow
def test_a_real_model_plays_and_is_scored(tmp_path):
    done = gym_demo(tmp_path, "--limit", "3", "--num-repeats", "2")
    assert done.returncode == 0, done.stderr
    for text in ("mean/reward ", "pass@2/accuracy", "95 % interval", "6 scored of 6 requested", "→ model", "next:"):
        assert text in done.stdout
    answers = said(tmp_path / "results/demo/rollouts.jsonl")
    assert set(answers) == {(task, index) for task in range(3) for index in range(2)}
    assert len(set(answers.values())) > 2, "a model that reads the question does not always say the same"


@pytest.mark.thorough
@pytest.mark.slow
def test_another_seed_says_something_else_but_at_temperature_zero_the_same(tmp_path):
    def play(temperature, seed):
        few = ["--limit", "2", "--num-repeats", "1", "--max-output-tokens", "8"]
        done = gym_demo(tmp_path, *few, "--temperature", temperature, "--seed", seed, "--output", "r.jsonl")
        assert done.returncode == 0, done.stderr
        return said(tmp_path / "r.jsonl")

    assert play("0", "1") == play("0", "2")
    assert play("1.5", "1") != play("1.5", "2")


def test_another_model_can_be_named_and_flags_win(tmp_path):
    options = ["--limit", "2", "--num-repeats", "1", "--output", "mine.jsonl", "--temperature", "0.3"]
    done = gym_demo(tmp_path, "--model-type", "replay_model", REPLIES, *options)
    assert done.returncode == 0, done.stderr
    assert set(said(tmp_path / "mine.jsonl").values()) == {"Tokyo"}
    row = json.loads((tmp_path / "mine_materialized_inputs.jsonl").read_text().splitlines()[0])
    assert row["responses_create_params"]["temperature"] == 0.3
    assert "max_output_tokens" not in row["responses_create_params"], "a model that thinks first needs room"
    assert "passed: task 1 (capitals), 1 of 1 right" in done.stdout
    assert "failed: task 0 (copying), 0 of 1 right" in done.stdout


def test_a_rerun_begins_anew(tmp_path):
    for _ in range(2):
        done = gym_demo(tmp_path, "--model-type", "replay_model", REPLIES, "--limit", "1")
        assert done.returncode == 0, done.stderr
        assert "4 scored of 4 requested" in done.stdout
    assert len(said(tmp_path / "results/demo/rollouts.jsonl")) == 4


def test_json_is_all_that_stdout_has(tmp_path):
    done = gym_demo(tmp_path, "--model-type", "replay_model", REPLIES, "--limit", "1", "--json")
    assert json.loads(done.stdout)["counts"]["scored"] == 4


def test_a_seed_for_another_model_is_a_usage_error():
    with pytest.raises(UsageError, match="--seed is for local_model"):
        demo.demo(["++config_paths=[responses_api_models/replay_model/configs/replay_model.yaml]", "++seed=3"])


def test_samples_are_one_that_passed_one_that_failed_and_one_in_between():
    rollouts = [rollout(0, 0.0), rollout(1, 0.0), rollout(2, 1.0, index=1), rollout(2, 0.0), rollout(3, 1.0)]
    titles = [text.splitlines()[0] for text in demo.choose_transcripts(rollouts)]
    assert titles == [
        "passed: task 3 (capitals), 1 of 1 right",
        "failed: task 0 (capitals), 0 of 1 right",
        "mixed: task 2 (capitals), 1 of 2 right",
    ]


def test_samples_are_as_many_as_there_are_kinds():
    assert len(demo.choose_transcripts([rollout(0, 1.0), rollout(1, 1.0)])) == 1
    assert demo.choose_transcripts([]) == []


def test_what_a_model_says_cannot_do_anything_to_the_terminal():
    (text,) = demo.choose_transcripts([rollout(0, 0.0, "a\x1b[2J\x07b\nc" + "x" * 10_000)])
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "a�[2J�b c" in text
    assert len(text) < 1000


def test_silence_is_shown_as_such():
    (text,) = demo.choose_transcripts([rollout(0, 0.0, "")])
    assert "(nothing)    reward 0" in text


def test_the_next_commands_name_the_file_of_this_run():
    text = "\n".join(demo.list_next_commands(Path("here/rollouts.jsonl")))
    assert "eval profile --rollouts here/rollouts.jsonl" in text
    assert "--model-type openai_model --model NAME --model-url URL --model-api-key KEY" in text
    assert "env init --resources-server" in text


def test_the_readme_says_how_much_the_demo_plays():
    tasks = len((PARENT_DIR / "resources_servers/first_steps/data/demo.jsonl").read_text().splitlines())
    assert f"{4 * tasks} rollouts over {tasks} tasks" in (PARENT_DIR / "README.md").read_text()
