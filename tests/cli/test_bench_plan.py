# SPDX-License-Identifier: Apache-2.0
"""`gym bench plan` on the command line; what is forecast is tested in tests/bench/plan."""

import json

import pytest

from nemo_gym._bench import bench_file, constants
from nemo_gym._bench.bench_file import describe_run
from nemo_gym._bench.parts import PartResult
from nemo_gym._bench.report import Row

KNOWN = (
    Row(constants.SINGLE_TURN, 600, constants.CPU_UNIT),
    Row(constants.TOOL_TURN, 500, constants.CPU_UNIT),
    Row(constants.COORDINATOR, 50, constants.CPU_UNIT),
    Row(constants.PROCESS, 100, constants.MEMORY_UNIT),
    Row(constants.IN_FLIGHT, 60, constants.ROLLOUT_MEMORY_UNIT),
    Row(constants.START, 1.5, constants.START_UNIT),
    Row("code_gen: verifications", 100, "/s"),
)


@pytest.fixture
def plan(gym, tmp_path):
    """Run `gym bench plan` with the flags of a line, and constants that were measured on four cores."""
    run = describe_run([PartResult("constants", KNOWN)], 1)
    run.machine["cores"] = 4
    bench_file.write(tmp_path / "constants.json", run)
    return lambda words: gym("bench", "plan", *words.split(), "--constants", str(tmp_path / "constants.json"))


def test_a_plan_says_how_fast_what_binds_and_what_to_change(plan):
    said = plan("--latency 2s --endpoint-in-flight 512 --nodes 4 --cores 8 --workers 8")
    assert said.code == 0
    assert "endpoint: requests in flight (allows 256 a second)" in said.out
    assert "More than 1 node(s) do not help: endpoint: requests in flight binds." in said.out
    assert "hint: let the endpoint take more requests at once" in said.out


def test_a_plan_as_json_has_the_curve_over_nodes(plan):
    words = "--latency lognormal:median=2s,sigma=0.5 --turns 3 --cores 8 --workers 8 --rollouts 1000 --json"
    told = json.loads(plan(words).out)
    assert told["schema"] == 1
    assert told["plan"]["duration_s"] > 6
    assert [step["nodes"] for step in told["by_nodes"]][-1] == 1000
    assert told["constants"]["single_turn_cpu_s"] == pytest.approx(600e-6)


def test_the_cost_of_a_verification_can_be_that_of_an_environment(plan):
    told = json.loads(plan("--latency 1ms --cores 4 --verify-like code_gen --json").out)
    assert told["plan"]["binds"] == "verifier CPU"
    assert told["plan"]["bounds"]["verifier CPU"] == pytest.approx(100, rel=0.05)


def test_a_run_of_before_tells_turns_and_tokens(plan, tmp_path):
    response = {"output": [{"type": "function_call_output"}, {"type": "message"}], "usage": {"output_tokens": 200}}
    (tmp_path / "rollouts.jsonl").write_text(json.dumps({"response": response}) + "\n")
    words = f"--latency 1s --from-rollouts {tmp_path / 'rollouts.jsonl'} --endpoint-tps 1000 --json"
    told = json.loads(plan(words).out)
    assert told["plan"]["binds"] == "endpoint: tokens a second"
    assert told["plan"]["bounds"]["endpoint: tokens a second"] == pytest.approx(5)


def test_the_constants_that_come_with_the_package_say_where_they_were_measured(gym):
    said = gym("bench", "plan", "--latency", "2s")
    assert said.code == 0
    assert "constants measured on " in said.err
    assert "cores, 20" in said.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "a plan needs to know how long a model call takes"),
        ("--latency soon", "--latency: 'soon' is neither a number nor a time"),
        ("--latency 2s --turns 0", "a rollout has at least one model call"),
        ("--latency 2s --endpoint-tps 100", "nothing says how many tokens a call generates"),
        ("--latency 2s --workers 8 --cores 2", "--workers 8 on a node of 2 cores"),
        ("--latency 2s --nodes 2000", "a plan is for 1 to 1,000 nodes"),
        ("--latency 2s --verify-like chess", "the constants do not say how fast 'chess' verifies"),
        ("--latency 2s --from-rollouts none.jsonl", "there is no file 'none.jsonl'"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_with_a_hint(plan, words, told):
    said = plan(words)
    assert said.code == 1
    assert told in said.err
    assert "\nhint: " in said.err


def test_a_file_without_constants_says_how_to_measure_them(gym, tmp_path):
    bench_file.write(
        tmp_path / "cli.json", describe_run([PartResult("cli", (Row("gym --help", 0.4, "x the imports"),))], 1)
    )
    said = gym("bench", "plan", "--latency", "2s", "--constants", str(tmp_path / "cli.json"))
    assert said.code == 1
    assert "hint: `gym bench constants --output constants.json` measures it on this machine" in said.err
