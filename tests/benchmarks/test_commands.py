# SPDX-License-Identifier: Apache-2.0
"""The benchmarks as a user sees them: listed, prepared from a Hub in processes of their own, and run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym.benchmarks import find_benchmarks
from tests.benchmarks.samples import GSM8K, SAMPLES
from tests.support.fake_hub import FakeHub, environment
from tests.support.in_process import ports_given_back, said_by


def gym(folder, *arguments, roots=(), **variables):
    """Run a command in `folder`."""
    return subprocess.run(
        [sys.executable, "-m", "nemo_gym.cli.main", *arguments],
        cwd=folder,
        env={**os.environ, "NEMO_GYM_EXTRA_ROOTS": os.pathsep.join(map(str, roots)), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def gym_here(monkeypatch, capsys, root, tmp_path):
    """Run a command in this process, in a folder of its own."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(root))
    with ports_given_back():
        yield lambda *words: said_by(monkeypatch, capsys, "gym", *words)


def test_all_benchmarks_are_listed():
    own = {one.name: one for one in find_benchmarks() if one.path.is_relative_to(PARENT_DIR / "benchmarks")}
    assert set(own) == set(SAMPLES)
    assert all(one.domain and one.description for one in own.values())
    assert {name for name, one in own.items() if one.num_repeats > 1} == {"aime24", "aime25"}
    assert own["math-500"].agent_name == "math_500_math_with_judge_simple_agent"


@pytest.mark.parametrize("name", SAMPLES)
def test_a_benchmark_is_laid_out_as_the_others(name):
    folder = PARENT_DIR / "benchmarks" / name
    assert (folder / "__init__.py").is_file()
    assert (folder / "data" / ".gitignore").read_text() == "*benchmark.jsonl\n"
    readme = (folder / "README.md").read_text()
    assert f"gym eval prepare --benchmark {name}\n" in readme
    assert SAMPLES[name].repo_id in readme
    assert all(line in readme for line in ("Code and prompts: ", "Data: ", "Dependencies"))


def test_a_benchmark_is_prepared_and_run(gym_here, root, tmp_path):
    run = ("eval", "run", "--benchmark", "gsm8k", "--model-type", "replay_model", "--output", "o.jsonl", "--json")
    model = "++policy_model.responses_api_models.replay_model"
    played = (*run, rf"{model}.replies=['It is \boxed{{12}}.']", f"{model}.on_miss=cycle", "--quiet")

    unprepared = gym_here(*played)
    assert unprepared.code == 1
    assert "hint: gym eval prepare --benchmark gsm8k\n" in unprepared.err

    with FakeHub() as hub:
        hub.add_dataset(GSM8K.repo_id, GSM8K.files())
        there = environment(hub, tmp_path / "hf")
        prepared = gym(tmp_path, "eval", "prepare", "--benchmark", "gsm8k", roots=[root], **there)
    assert prepared.returncode == 0, prepared.stderr
    assert prepared.stdout.startswith("Prepared: 3 rows of 'gsm8k' for 'gsm8k_math_with_judge_simple_agent'")

    done = gym_here(*played)
    assert done.code == 0, done.err
    assert json.loads(done.out)["counts"]["scored"] == 3
    rows = [json.loads(line) for line in Path("o.jsonl").read_text().splitlines()]
    assert sorted((row["reward"], row["expected_answer"]) for row in rows) == [(0.0, "-5"), (0.0, "2120"), (1.0, "12")]
    right = max(rows, key=lambda row: row["reward"])
    asked = right["responses_create_params"]["input"][0]["content"]
    assert asked.startswith(GSM8K.rows[0]["question"])
    assert asked.endswith("\\boxed{}.")


def test_a_script_can_be_run_by_itself(root, tmp_path):
    with FakeHub() as hub:
        hub.add_dataset("HuggingFaceH4/MATH-500", SAMPLES["math-500"].files())
        subprocess.run(
            [sys.executable, root / "benchmarks" / "math-500" / "prepare.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(PARENT_DIR), **environment(hub, tmp_path / "hf")},
            check=True,
        )
    assert (root / "benchmarks" / "math-500" / "data" / "math-500_benchmark.jsonl").is_file()


def test_a_missing_token_is_said_without_a_traceback(root, tmp_path):
    shutil.rmtree(root / "benchmarks" / "gsm8k")
    with FakeHub() as hub:
        hub.add_dataset("Idavidrein/gpqa", SAMPLES["gpqa"].files(), private=True)
        there = environment(hub, tmp_path / "hf")
        refused = gym(tmp_path, "eval", "prepare", "--benchmark", "gpqa", **there)
        token = gym(tmp_path, "eval", "prepare", "--benchmark", "gpqa", "+hf_token=hf_reader", **there)
    assert (refused.returncode, "Traceback" in refused.stderr) == (1, False)
    assert "HF_TOKEN" in refused.stderr
    assert token.returncode == 0, token.stderr
