# SPDX-License-Identifier: Apache-2.0
"""Every environment, played by a real model in one run: what a model says is scored, whatever it says."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from nemo_gym import PARENT_DIR

ENVIRONMENTS = (
    "blackjack",
    "calendar",
    "code_gen",
    "equivalence_llm_judge",
    "example_tool_call_multireward",
    "instruction_following",
    "math_advanced_calculations",
    "math_with_code",
    "math_with_judge",
    "mcqa",
    "reasoning_gym",
    "string_match",
    "structured_outputs",
    "workplace_assistant",
    "xlam_fc",
)
# What is tested is the way of a reply through agent, tools and verifier: a few words will do.
_MAX_OUTPUT_TOKENS = "8"


@pytest.mark.slow
@pytest.mark.local_model
@pytest.mark.timeout(900)
def test_a_real_model_plays_the_five_examples_of_every_environment(tmp_path):
    servers = [word for name in ENVIRONMENTS for word in ("--resources-server", name)]
    model = ["--model-type", "local_model", "--max-output-tokens", _MAX_OUTPUT_TOKENS, "--temperature", "0"]
    how = ["--split", "example", "--output", str(tmp_path / "r.jsonl"), "--timeout", "800", "--json", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "nemo_gym.cli.main", "eval", "run", *servers, *model, *how],
        cwd=PARENT_DIR,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["counts"]
    assert (counts["scored"], counts["requested"]) == (75, 75)
    rows = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    played = Counter(row["agent_ref"]["name"].rsplit("_", 2)[0] for row in rows)
    assert played == dict.fromkeys(ENVIRONMENTS, 5)
    assert all(row["response"]["output"] for row in rows)
    assert all(-1 <= row["reward"] <= 3 for row in rows)


def test_every_environment_that_has_a_verifier_is_among_them():
    shipped = {
        path.parent.name
        for path in (PARENT_DIR / "resources_servers").glob("*/generate_data.py")
        if not path.parent.name.startswith("example_") or path.parent.name in ENVIRONMENTS
    }
    assert shipped - {"first_steps"} == set(ENVIRONMENTS)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_environment_keeps_to_the_contract():
    servers = [word for name in ENVIRONMENTS for word in ("--resources-server", name)]
    done = subprocess.run(
        [sys.executable, "-m", "nemo_gym.cli.main", "env", "check", *servers],
        cwd=PARENT_DIR,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("✓ starts") == len(ENVIRONMENTS)
    assert "✗" not in done.stdout
