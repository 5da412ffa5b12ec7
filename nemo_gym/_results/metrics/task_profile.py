# SPDX-License-Identifier: Apache-2.0
"""A reward profile: how the rollouts of every task came out, and how every agent did over all its tasks.

Rows are planned rollouts (materialized inputs), results are finished ones; they are matched by task and rollout index,
in any order. Nothing is read or written here.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym._results.metrics.describe import HISTOGRAM, Number, mean
from nemo_gym._results.metrics.rollout_metrics import (
    Key,
    MeasuredRollout,
    ResultsError,
    describe_rollouts,
    group_by_task,
    list_rewards,
    measure,
    name_rollouts,
    read_key,
    require_distinct,
)
from nemo_gym._util.row_keys import (
    AGENT_REF_KEY_NAME,
    REWARD_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)


@dataclass(frozen=True)
class Profile:
    tasks: list[dict[str, Any]]
    agents: list[dict[str, Any]]


def profile(
    rows: Iterable[Mapping[str, Any]],
    results: Iterable[Mapping[str, Any]],
    *,
    allow_partial: bool = False,
    pass_threshold: float | None = None,
) -> Profile:
    """Match `results` to `rows` and describe them; raise ResultsError unless they match one to one.

    With `allow_partial`, planned rollouts may lack a result; a task without any results is listed with its counts only.
    """
    planned: dict[Key, str | None] = {}
    samples: dict[int, Mapping[str, Any]] = {}
    keys = []
    for row in rows:
        key = read_key(row)
        agent_ref = row.get(AGENT_REF_KEY_NAME)
        keys.append(key)
        planned[key] = agent_ref.get("name") if isinstance(agent_ref, Mapping) else None
        samples.setdefault(key[0], make_sample(row))
    require_distinct(keys, "input rows")
    rollouts = measure(results)
    require_match(planned, rollouts, allow_partial=allow_partial)
    expected = Counter(task for task, _ in planned)
    by_task = dict(group_by_task(rollouts))
    return Profile(
        tasks=[
            make_entry(
                task,
                by_task.get(task, []),
                expected[task],
                samples[task],
                pass_threshold=pass_threshold,
                histograms=True,
            )
            for task in sorted(samples)
        ],
        agents=describe_agents(planned, rollouts, histograms=True),
    )


def make_sample(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input of a task: a planned row without the indices of its rollout."""
    return {key: value for key, value in row.items() if key not in (TASK_INDEX_KEY_NAME, ROLLOUT_INDEX_KEY_NAME)}


def make_entry(
    task: int,
    rollouts: Sequence[MeasuredRollout],
    expected: int,
    sample: object,
    *,
    pass_threshold: float | None = None,
    histograms: bool = False,
) -> dict[str, Any]:
    """Describe a task that should have `expected` rollouts; one without any has only counts.

    `sample` is the input of the task. With `pass_threshold`, also count the rollouts that reach this reward.
    """
    n = len(rollouts)
    return {
        TASK_INDEX_KEY_NAME: task,
        **describe_rollouts(rollouts, histograms=histograms),
        "sample": sample,
        "num_rollouts": n,
        "expected_num_rollouts": expected,
        "missing_num_rollouts": expected - n,
        "reward_profile_completion_pct": 100.0 * n / expected,
        "rollout_infos": [
            {
                "rollout_id": f"{task}:{one.key[1]}",
                TASK_INDEX_KEY_NAME: task,
                ROLLOUT_INDEX_KEY_NAME: one.key[1],
                REWARD_KEY_NAME: None,
                **one.numbers,
            }
            for one in rollouts
        ],
        **_compute_pass_rate(list_rewards(rollouts), pass_threshold),
    }


def require_match(
    planned: Mapping[Key, str | None], rollouts: Sequence[MeasuredRollout], *, allow_partial: bool
) -> None:
    """Raise ResultsError unless the scored rollouts are the planned ones; with `allow_partial`, some may be missing."""
    finished = {rollout.key for rollout in rollouts}
    if finished == planned.keys():
        return
    extra = finished - planned.keys()
    if extra:
        raise ResultsError(
            f"{len(extra)} rollouts have no input row: {name_rollouts(extra)}\n"
            f"hint: give the materialized inputs of the same run as the rollouts"
        )
    missing = planned.keys() - finished
    if missing and not allow_partial:
        raise ResultsError(
            f"{len(rollouts)} of {len(planned)} rollouts were scored; {len(missing)} are missing: "
            f"{name_rollouts(missing)}\n"
            f"hint: run the rest with --resume, or profile the results so far with `+allow_partial_rollouts=true`"
        )


def describe_agents(
    planned: Mapping[Key, str | None], rollouts: Sequence[MeasuredRollout], *, histograms: bool = False
) -> list[dict[str, Any]]:
    """Return an entry for every agent that has rollouts, sorted by name."""
    by_agent: dict[str | None, list[MeasuredRollout]] = {}
    for rollout in rollouts:
        by_agent.setdefault(planned[rollout.key], []).append(rollout)
    return [
        {AGENT_REF_KEY_NAME: {"name": name}, **describe_rollouts(by_agent[name], histograms=histograms)}
        for name in sorted(by_agent, key=lambda name: name or "")
    ]


def drop_histograms(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry as it is written to disk."""
    return {name: value for name, value in entry.items() if not name.startswith(f"{HISTOGRAM}/")}


def summarize_rewards(rewards: Sequence[Number], pass_threshold: float | None = None) -> dict[str, Any]:
    """Return the `ng_profile` of a task with these rewards; the standard deviation is that of the population."""
    average = mean(rewards)
    return {
        "avg_reward": average,
        "std_reward": math.dist(rewards, [average] * len(rewards)) / math.sqrt(len(rewards)),
        "min_reward": min(rewards),
        "max_reward": max(rewards),
        "total_samples": len(rewards),
        **_compute_pass_rate(rewards, pass_threshold),
    }


def _compute_pass_rate(rewards: Sequence[Number], threshold: float | None) -> dict[str, Number]:
    if threshold is None:
        return {}
    passed = sum(reward >= threshold for reward in rewards)
    return {
        "pass_rate": passed / len(rewards) if rewards else 0.0,
        "pass_rate_total": len(rewards),
        "pass_rate_passed": passed,
        "pass_threshold": threshold,
    }
