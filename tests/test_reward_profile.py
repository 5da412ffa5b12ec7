# SPDX-License-Identifier: Apache-2.0
"""The contract of nemo_gym.reward_profile: names, shapes, files. The arithmetic is tested in tests/results/metrics."""

import json
import subprocess
import sys

import pytest

from nemo_gym.config_types import AggregateMetrics
from nemo_gym.global_config import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.reward_profile import (
    AggregateMetricsMixin,
    RewardProfileConfig,
    RewardProfiler,
    add_avg_sample_std_dev,
    compute_aggregate_metrics,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    highest_k_metrics,
)


class Server(AggregateMetricsMixin):
    def compute_metrics(self, tasks):
        metrics, scores, names, max_k = compute_pass_majority_metrics(tasks, answer_key="extracted_answer")
        add_avg_sample_std_dev(metrics, scores, names, max_k)
        metrics.update(compute_subset_metrics(tasks, subset_key="level", answer_key="extracted_answer"))
        return metrics

    def get_key_metrics(self, agent_metrics):
        return {
            **super().get_key_metrics(agent_metrics),
            **highest_k_metrics(agent_metrics, "pass@{k}", exclude_names=["no_answer"]),
            **highest_k_metrics(agent_metrics, "pass@1[avg-of-{k}]", score_names=["accuracy"]),
            **highest_k_metrics(agent_metrics, "majority@{k}", score_names=["accuracy"]),
        }


def responses():
    answers = {(0, 0): ("4", 1.0), (0, 1): ("5", 0.0), (1, 0): ("7", 1.0), (1, 1): (None, 0.0)}
    return [
        {
            TASK_INDEX_KEY_NAME: task,
            ROLLOUT_INDEX_KEY_NAME: rollout,
            "reward": reward,
            "extracted_answer": answer,
            "level": f"level{task}",
            "response": {"usage": {"output_tokens": 10 * (rollout + 1)}},
        }
        for (task, rollout), (answer, reward) in answers.items()
    ]


def test_a_server_gets_its_metrics_summarized():
    server = Server()
    found = compute_aggregate_metrics(
        responses(), compute_metrics_fn=server.compute_metrics, get_key_metrics_fn=server.get_key_metrics
    )
    assert isinstance(found, AggregateMetrics)
    assert found.key_metrics == {
        "mean/reward": 0.5,
        "mean/output_tokens": 15.0,
        "pass@2/accuracy": 100.0,
        "pass@1[avg-of-2]/accuracy": 50.0,
        "majority@2/accuracy": 75.0,
    }
    assert found.agent_metrics["level1/majority@2/accuracy"] == 100.0
    assert found.agent_metrics["pass@1[avg-of-2]/accuracy/avg_sample_std_dev"] == pytest.approx(70.71067811865476)
    assert found.agent_metrics["per_sample_aggregate"]["accuracy"] == [100.0, 0.0]
    assert [entry["num_rollouts"] for entry in found.group_level_metrics] == [2, 2]


def test_the_defaults_add_nothing_and_show_the_means():
    mixin = AggregateMetricsMixin()
    assert mixin.compute_metrics([[{"reward": 1.0}]]) == {}
    assert mixin.get_key_metrics({"mean/reward": 1.0, "std/reward": 0.0}) == {"mean/reward": 1.0}


def test_no_responses_are_summarized_as_nothing():
    assert compute_aggregate_metrics([]) == AggregateMetrics()


def test_the_summary_survives_json():
    found = compute_aggregate_metrics(responses(), compute_metrics_fn=Server().compute_metrics)
    assert AggregateMetrics.model_validate_json(found.model_dump_json()) == found


def test_pass_metrics_come_with_what_they_were_computed_from():
    metrics, scores, names, max_k = compute_pass_majority_metrics([[{"reward": 1.0}, {"reward": 0.0}]])
    assert metrics["pass@2/accuracy"] == 100.0
    assert scores == [[{"accuracy": 1.0}, {"accuracy": 0.0}]]
    assert names == ["accuracy"]
    assert max_k == 2


def run_files(folder, rewards, torn=False):
    keys = [{"_ng_task_index": t, "_ng_rollout_index": r} for t in range(2) for r in range(2)]
    inputs = [{**key, "agent_ref": {"name": "agent"}} for key in keys]
    results = [{**key, "reward": reward} for key, reward in zip(keys, rewards, strict=False)]
    (folder / "run_materialized_inputs.jsonl").write_text("\n".join(map(json.dumps, inputs)) + "\n")
    text = "".join(json.dumps(result) + "\n" for result in results)
    (folder / "run.jsonl").write_text(text + ('{"_ng_task_in' if torn else ""))
    return {
        "materialized_inputs_jsonl_fpath": str(folder / "run_materialized_inputs.jsonl"),
        "rollouts_jsonl_fpath": str(folder / "run.jsonl"),
    }


def test_a_profile_is_written_beside_the_rollouts(tmp_path):
    config = RewardProfileConfig(**run_files(tmp_path, [1.0, 0.0, 1.0, 1.0]))
    tasks_path, agents_path = RewardProfiler().run_from_config(config)
    assert tasks_path == tmp_path / "run_reward_profiling.jsonl"
    assert agents_path == tmp_path / "run_agent_metrics.json"
    tasks = [json.loads(line) for line in tasks_path.read_text().splitlines()]
    assert [entry["mean/reward"] for entry in tasks] == [0.5, 1.0]
    assert json.loads(agents_path.read_text())[0]["mean/reward"] == 0.75
    assert "histogram/" not in tasks_path.read_text() + agents_path.read_text()


def test_the_profile_in_memory_has_histograms():
    row = {"_ng_task_index": 0, "_ng_rollout_index": 0}
    tasks, agents = RewardProfiler().profile_from_data([row], [{**row, "reward": 1.0}])
    assert tasks[0]["histogram/reward"] == agents[0]["histogram/reward"] == {"bins": [1.0, 1.0], "counts": [1]}


def test_a_run_that_was_cut_off_can_be_profiled_in_part(tmp_path):
    files = run_files(tmp_path, [1.0, 0.0, 1.0], torn=True)
    with pytest.raises(ValueError, match="3 of 4 rollouts were scored; 1 are missing: 1:1"):
        RewardProfiler().run_from_config(RewardProfileConfig(**files))
    assert not (tmp_path / "run_reward_profiling.jsonl").exists()
    RewardProfiler().run_from_config(RewardProfileConfig(**files, allow_partial_rollouts=True))
    assert len((tmp_path / "run_reward_profiling.jsonl").read_text().splitlines()) == 2


def test_importing_the_metrics_loads_no_heavy_library():
    heavy = "{'pandas', 'numpy', 'wandb', 'ray', 'torch', 'hydra'}"
    code = f"import sys, nemo_gym.reward_profile; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
