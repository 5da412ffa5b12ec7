# SPDX-License-Identifier: Apache-2.0
import orjson
import pytest

from nemo_gym._bench.plan.distributions import PlanError
from nemo_gym._bench.plan.observed import read_observed_run


def write(path, *rows):
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def rollout(tool_results=0, tokens=100, **more):
    output = [{"type": "function_call_output"}] * tool_results + [{"type": "message"}]
    return {"response": {"output": output, "usage": {"output_tokens": tokens}}, **more}


def test_turns_are_the_tool_results_and_the_answer(tmp_path):
    observed = read_observed_run(write(tmp_path / "r.jsonl", rollout(0), rollout(2)))
    assert observed.turns.mean == 2
    assert observed.latency is None


def test_tokens_are_those_of_a_call(tmp_path):
    assert read_observed_run(write(tmp_path / "r.jsonl", rollout(1, tokens=300))).tokens.mean == 150


def test_calls_that_were_recorded_tell_latency_and_turns(tmp_path):
    calls = [{"latency_total_ms": 1000.0}, {"latency_total_ms": 3000.0}]
    observed = read_observed_run(write(tmp_path / "r.jsonl", rollout(0, ng_model_call_capture={"calls": calls})))
    assert observed.latency.mean == 2
    assert observed.turns.mean == 2


@pytest.mark.parametrize("content", [b"", b'{"reward": 1}\n'])
def test_a_file_without_rollouts_is_refused(tmp_path, content):
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    with pytest.raises(PlanError, match=r"holds no rollout with a response.*\n.*\nhint: "):
        read_observed_run(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(PlanError, match=r"there is no file .*\n.*\nhint: "):
        read_observed_run(tmp_path / "none.jsonl")
