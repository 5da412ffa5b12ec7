# SPDX-License-Identifier: Apache-2.0
"""Every environment, played in one run: what a model says is scored, whatever it says."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym._servers.installing.requirements import find_unmet, read_requirements

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
    "workspace_tasks",
    "xlam_fc",
)
GYM = (sys.executable, "-m", "nemo_gym.cli.main")
# What is tested is the way of a reply through agent, tools and verifier: a few words will do.
_MAX_OUTPUT_TOKENS = "8"
# Each of its sandboxes loads the whole library, which takes seconds.
_ONE_SANDBOX = "++reasoning_gym.resources_servers.reasoning_gym.num_processes=1"


# The real one takes a minute: on a processor it reads slowly. `test_docs.py` and `test_demo.py` play with it too.
MODELS = {
    "real": ["--model-type", "local_model", "--max-output-tokens", _MAX_OUTPUT_TOKENS, "--temperature", "0"],
    "scripted": [
        "--model-type",
        "replay_model",
        "++policy_model.responses_api_models.replay_model.replies=[It is \\\\boxed\\{7\\}\\, I think.]",
        "++equivalence_llm_judge.resources_servers.equivalence_llm_judge.judge_not_equal_label=think",
    ],
}


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.local_model
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("model", "rows_each", "tools_each"),
    [
        ("scripted", 1, 99),
        pytest.param("real", 1, 4, marks=pytest.mark.exhaustive),
        pytest.param("real", 5, 99, marks=pytest.mark.exhaustive),
    ],
)
def test_a_model_plays_examples_of_every_environment(tmp_path, model, rows_each, tools_each):
    rows = [row for name in ENVIRONMENTS for row in rows_of(name, rows_each, tools_each)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    servers = [word for name in ENVIRONMENTS for word in ("--resources-server", name)]
    where = ["--input", str(tmp_path / "rows.jsonl"), "--output", str(tmp_path / "r.jsonl")]
    # The model judges its own answers, and the real one is too small to say a label.
    unjudged = rows_each if model == "real" else 0
    limits = ["--timeout", "800", "--allow-failures", str(unjudged)]
    done = subprocess.run(
        [*GYM, "eval", "run", *servers, *MODELS[model], *where, _ONE_SANDBOX, *limits, "--json", "--quiet"],
        cwd=PARENT_DIR,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["counts"]
    assert counts["requested"] == rows_each * len(ENVIRONMENTS)
    assert counts["requested"] - unjudged <= counts["scored"] <= counts["requested"]
    rows = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    played = Counter(row["agent_ref"]["name"] for row in rows)
    del played[agent_of("equivalence_llm_judge")]
    judged_by_rule = set(ENVIRONMENTS) - {"equivalence_llm_judge"}
    assert played == {agent_of(name): rows_each for name in judged_by_rule}
    assert all(row["response"]["output"] for row in rows)
    assert all(-1 <= row["reward"] <= 3 for row in rows)


def rows_of(name, count, tools):
    """The first example rows of an environment, with the agent that plays them and no more than so many tools.

    On a processor the model reads slowly, and the tools are most of what it is given to read.
    """
    lines = (PARENT_DIR / "resources_servers" / name / "data" / "example.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines[:count]]
    for row in rows:
        row["agent_ref"] = {"type": "responses_api_agents", "name": agent_of(name)}
        if offered := row["responses_create_params"].get("tools"):
            row["responses_create_params"]["tools"] = offered[:tools]
    return rows


def agent_of(name):
    return f"{name}_gymnasium_agent" if name == "blackjack" else f"{name}_simple_agent"


def test_every_environment_that_has_a_verifier_is_among_them():
    # What needs a library that is not here is played by the tests of its own folder.
    shipped = {
        path.parent.name
        for path in (PARENT_DIR / "resources_servers").glob("*/generate_data.py")
        if not path.parent.name.startswith("example_") or path.parent.name in ENVIRONMENTS
        if find_unmet(read_requirements(path.parent)) is None
        # The examples of this one are played on an OpenEnv server, which its own tests start.
        if path.parent.name != "openenv"
    }
    assert shipped - {"first_steps"} == set(ENVIRONMENTS)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_environment_keeps_to_the_contract():
    servers = [word for name in ENVIRONMENTS for word in ("--resources-server", name)]
    done = subprocess.run(
        [*GYM, "env", "check", *servers, _ONE_SANDBOX],
        cwd=PARENT_DIR,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("✓ starts") == len(ENVIRONMENTS)
    assert "✗" not in done.stdout
