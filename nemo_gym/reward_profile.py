# SPDX-License-Identifier: Apache-2.0
"""Metrics over rollouts: pass@k and similar metrics for `compute_metrics`, the summary behind `/aggregate_metrics`, and
reward profiles of whole runs.

The arithmetic is in `nemo_gym._results.metrics`. NaN and infinite values never count: they are left out of the metric,
and a warning in the log names the field.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import Field

from nemo_gym._results.metrics import grouped_metrics as _aggregate, task_profile as _profile
from nemo_gym._results.metrics.describe import mean
from nemo_gym._results.metrics.pass_at_k import (
    AVERAGE,
    AVG_SAMPLE_STD_DEV,
    N_SCORED,
    N_TASKS,
    PER_SAMPLE_AGGREGATE,
    ScoreFn,
    average_curves,
    compute_pass_majority,
    compute_spread_curve,
    name_metric,
    select_highest_k,
    select_means,
    select_score,
)
from nemo_gym._util.atomic_files import write_atomically
from nemo_gym._util.jsonl_files import read_rows, write_rows
from nemo_gym._util.moved_names import find_names
from nemo_gym.config_types import AggregateMetrics, BaseNeMoGymCLIConfig
from nemo_gym.path_utils import agent_metrics_path_for, reward_profiling_path_for

Tasks = Sequence[Sequence[dict[str, Any]]]
"""The verify responses of every task's rollouts."""


class RewardProfileConfig(BaseNeMoGymCLIConfig):
    """Profile the rewards of a finished run, per task and per agent."""

    materialized_inputs_jsonl_fpath: str = Field(description="The `*_materialized_inputs.jsonl` file of the run.")
    rollouts_jsonl_fpath: str = Field(description="The rollouts file of the run.")
    allow_partial_rollouts: bool = Field(
        default=False, description="Profile the results so far even if some planned rollouts have none."
    )
    pass_threshold: float | None = Field(
        default=None, description="For every task, add the share of rollouts whose reward reaches this value."
    )


class RewardProfiler:
    """Turns the rollouts of a run into statistics per task and per agent."""

    def profile_from_data(
        self,
        rows: Iterable[Mapping[str, Any]],
        results: Iterable[Mapping[str, Any]],
        allow_partial_rollouts: bool = False,
        pass_threshold: float | None = None,
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return entries per task and per agent.

        `rows` are the materialized inputs and `results` the rollouts, in any order. Raise ValueError unless they match
        one to one by task and rollout index; with `allow_partial_rollouts`, rows may lack a result.
        """
        profile = _profile.profile(rows, results, allow_partial=allow_partial_rollouts, pass_threshold=pass_threshold)
        return profile.tasks, profile.agents

    def write_to_disk(
        self,
        group_level_metrics: Iterable[Mapping[str, Any]],
        agent_level_metrics: Iterable[Mapping[str, Any]],
        base_output_fpath: str | Path,
    ) -> tuple[Path, Path]:
        """Write the entries, without histograms, beside the rollouts file; return the two paths."""
        tasks_path = reward_profiling_path_for(base_output_fpath)
        agents_path = agent_metrics_path_for(base_output_fpath)
        write_rows(tasks_path, map(_profile.drop_histograms, group_level_metrics))
        agents = [_profile.drop_histograms(entry) for entry in agent_level_metrics]
        write_atomically(agents_path, orjson.dumps(agents, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        return tasks_path, agents_path

    def run_from_config(self, config: RewardProfileConfig) -> tuple[Path, Path]:
        """Read the files of a run, profile them and write the result beside the rollouts file."""
        tasks, agents = self.profile_from_data(
            read_rows(config.materialized_inputs_jsonl_fpath),
            read_rows(config.rollouts_jsonl_fpath, torn_tail_ok=True),
            allow_partial_rollouts=config.allow_partial_rollouts,
            pass_threshold=config.pass_threshold,
        )
        return self.write_to_disk(tasks, agents, config.rollouts_jsonl_fpath)


def compute_pass_majority_metrics(
    tasks: Tasks, score_fn: ScoreFn | None = None, answer_key: str | None = None
) -> tuple[dict[str, Any], list[list[dict[str, Any]]], list[str], int]:
    """Compute pass@k, pass@1[avg-of-k] and, with `answer_key`, majority@k of every score, in percent.

    `score_fn` returns the scores of a rollout; the default is its reward, as `accuracy`. `answer_key` names the field
    with the extracted answer; null means that there is none, which is scored as `no_answer`.

    For every k up to the largest number of rollouts of a task (tasks with fewer than k rollouts are left out):

    - `pass@k/<score>`: 1 - C(wrong, k)/C(n, k) where all scores of the task are 0 or 1, else the best of the first k
    - `pass@1[avg-of-k]/<score>`: the mean of the first k; for k >= 2 with `/std_dev_across_runs` and
      `/std_err_across_runs`, the spread of the first k entries of `per_sample_aggregate`
    - `majority@k/<score>`: the score of the commonest (answer, score) pair of the first k, ties averaged, 0 if none
    - `per_sample_aggregate`: for every score, the mean over tasks of their 1st, 2nd, ... rollout

    Return the metrics, the scores of every rollout, the names of the scores, and the largest k.
    """
    result = compute_pass_majority(tasks, score_fn, answer_key)
    return result.metrics, result.scores, result.score_names, result.max_k


def add_avg_sample_std_dev(
    metrics: dict[str, Any],
    all_score_dicts: Sequence[Sequence[dict[str, Any]]],
    score_names: Sequence[str],
    max_k: int,
) -> dict[str, Any]:
    """Add `pass@1[avg-of-k]/<score>/avg_sample_std_dev` for k >= 2 to `metrics`, which is also returned.

    This is the sample standard deviation of the first k scores of a task, averaged over tasks, in percent.
    """
    for name in score_names:
        values = select_score(name, all_score_dicts).values
        means = average_curves(map(compute_spread_curve, values))
        for k in range(2, min(max_k, len(means)) + 1):
            metrics[f"{name_metric(AVERAGE, k, name)}/{AVG_SAMPLE_STD_DEV}"] = means[k - 1]
    return metrics


def compute_subset_metrics(
    tasks: Tasks, subset_key: str, score_fn: ScoreFn | None = None, answer_key: str | None = None
) -> dict[str, Any]:
    """Compute the metrics of `compute_pass_majority_metrics` for every value of `subset_key`, as `<subset>/<metric>`.

    A task belongs to the value in its first rollout; tasks without a value are in no subset. `<subset>/n_scored` and
    `<subset>/n_tasks` count the rollouts and tasks behind the metrics of a subset.
    """
    subsets: dict[str, list[Sequence[dict[str, Any]]]] = {}
    for task in tasks:
        if task and (subset := task[0].get(subset_key)):
            subsets.setdefault(str(subset), []).append(task)
    metrics: dict[str, Any] = {}
    for subset, of_subset in subsets.items():
        computed = compute_pass_majority(of_subset, score_fn, answer_key).metrics
        computed.pop(PER_SAMPLE_AGGREGATE, None)  # servers sum a subset's values, so all must be numbers
        sizes = {N_SCORED: sum(map(len, of_subset)), N_TASKS: len(of_subset)}
        metrics |= {f"{subset}/{name}": value for name, value in {**computed, **sizes}.items()}
    return metrics


def compute_mean_rewards_by(tasks: Tasks, category_key: str) -> dict[str, Any]:
    """Return the mean reward for every value of `category_key`, as `mean/reward/<category>`; every task weighs the
    same.

    `n_scored/mean/reward/<category>` counts the rollouts behind it; tables of metrics show it beside the mean.
    """
    categories: dict[str, list[list[float]]] = {}
    for task in tasks:
        if task and task[0].get(category_key) is not None:
            categories.setdefault(str(task[0][category_key]), []).append([rollout["reward"] for rollout in task])
    metrics: dict[str, Any] = {}
    for category, rewards in sorted(categories.items()):
        name = f"mean/reward/{category}"
        metrics[name] = mean([*map(mean, rewards)])
        metrics[f"{N_SCORED}/{name}"] = sum(map(len, rewards))
    return metrics


def highest_k_metrics(
    metrics: Mapping[str, Any],
    pattern: str,
    score_names: Collection[str] | None = None,
    exclude_names: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return the metrics that match `pattern`, such as `"pass@1[avg-of-{k}]"`, for the highest k.

    Without `score_names`, return all scores but not their spreads; ask for a spread as
    `"accuracy/std_dev_across_runs"`.
    """
    return select_highest_k(metrics, pattern, score_names, exclude_names)


class AggregateMetricsMixin:
    """The hooks through which a server adds its own metrics."""

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return the server's own metrics over the verify responses of every task, in order of task and rollout index.

        The special key `per_task_metrics`, a list with one mapping per task, is merged into the per-task entries.
        """
        return {}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """Return the few metrics to look at first."""
        return select_means(agent_metrics)


def compute_aggregate_metrics(
    verify_responses: Sequence[dict[str, Any]],
    compute_metrics_fn: Callable[[list[list[dict[str, Any]]]], dict[str, Any]] | None = None,
    get_key_metrics_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> AggregateMetrics:
    """Describe all numeric fields, over all rollouts and per task, with the server's own metrics merged in.

    A response without a task or rollout index counts as index 0; a repeated pair raises ValueError.
    """
    result = _aggregate.aggregate(verify_responses, compute_metrics_fn, get_key_metrics_fn)
    return AggregateMetrics(group_level_metrics=result.tasks, agent_metrics=result.agent, key_metrics=result.key)


if not TYPE_CHECKING:
    __getattr__ = find_names(__name__)
