# SPDX-License-Identifier: Apache-2.0
"""A reward profile: how the rollouts of every task came out, and how every agent did over all its tasks.

Rows are planned rollouts (materialized inputs), results are finished ones; they are matched by task and rollout index,
whatever their order. Nothing is read or written here.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym._metrics.describe import HISTOGRAM, Number, describe_fields, finite, mean
from nemo_gym._metrics.rollouts import Measured, RolloutKey, by_task, key_of, listed, measure, require_distinct
from nemo_gym._util.row_keys import AGENT_REF_KEY_NAME, REWARD_KEY_NAME, TASK_INDEX_KEY_NAME


@dataclass(frozen=True)
class Profile:
    tasks: list[dict[str, Any]]
    agents: list[dict[str, Any]]


@dataclass(frozen=True)
class _Plan:
    """What the rows say: the agent of every planned rollout, and one row per task to show."""

    agents: dict[RolloutKey, str | None]
    samples: dict[int, Mapping[str, Any]]

    def expected(self) -> dict[int, int]:
        counts = dict.fromkeys(sorted(self.samples), 0)
        for key in self.agents:
            counts[key.task] += 1
        return counts


def profile(
    rows: Iterable[Mapping[str, Any]],
    results: Iterable[Mapping[str, Any]],
    *,
    allow_partial: bool = False,
    pass_threshold: float | None = None,
) -> Profile:
    """Match `results` to `rows` and describe them; ValueError unless they match one to one.

    With `allow_partial`, planned rollouts may lack a result; a task without any is listed with its counts only.
    """
    plan = _plan(rows)
    measured = measure(results)
    _require_match(plan, measured, allow_partial)
    tasks = by_task(measured)
    return Profile(
        tasks=[
            _task_entry(task, tasks.get(task, []), plan.samples[task], expected, pass_threshold)
            for task, expected in plan.expected().items()
        ],
        agents=_agent_entries(plan, measured),
    )


def without_histograms(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry as it is written to disk."""
    return {name: value for name, value in entry.items() if not name.startswith(f"{HISTOGRAM}/")}


def counts_and_infos(measured: Sequence[Measured], expected: int) -> dict[str, Any]:
    """How many rollouts of a task there are, how many are missing, and an entry for each."""
    return {
        "num_rollouts": len(measured),
        "expected_num_rollouts": expected,
        "missing_num_rollouts": expected - len(measured),
        "reward_profile_completion_pct": 100.0 * len(measured) / expected,
        "rollout_infos": [one.info() for one in measured],
    }


def pass_rate(rewards: Sequence[Number], threshold: float) -> dict[str, Any]:
    """The share of `rewards` that reach `threshold`."""
    passed = sum(reward >= threshold for reward in rewards)
    return {
        "pass_rate": passed / len(rewards) if rewards else 0.0,
        "pass_rate_total": len(rewards),
        "pass_rate_passed": passed,
        "pass_threshold": threshold,
    }


def profile_dataset(
    tasks: Sequence[Mapping[str, Any]], results: Iterable[Mapping[str, Any]], pass_threshold: float | None = None
) -> list[dict[str, Any]]:
    """The tasks of a dataset, each with the statistics of its rewards, as `ng_profile` writes them.

    Task i is the i-th row. The deviation is that of the population, a missing reward counts as 0, and tasks without
    rollouts are left out.
    """
    rewards: dict[int, list[Number]] = {}
    for result in results:
        reward = result.get(REWARD_KEY_NAME)
        number = 0.0 if reward is None else finite(reward)
        if number is None:
            raise ValueError(f"rollout {key_of(result)} has the reward {reward!r}, which is not a finite number")
        rewards.setdefault(key_of(result).task, []).append(number)
    unknown = sorted(index for index in rewards if not 0 <= index < len(tasks))
    if unknown:
        raise ValueError(
            f"the rollouts speak of tasks {unknown[:10]}, but the dataset has {len(tasks)} rows.\n"
            f"hint: give the dataset that these rollouts were collected from"
        )
    return [{**tasks[index], **_reward_summary(rewards[index], pass_threshold)} for index in sorted(rewards)]


def _reward_summary(rewards: Sequence[Number], pass_threshold: float | None) -> dict[str, Any]:
    average = mean(rewards)
    return {
        "avg_reward": average,
        "std_reward": math.dist(rewards, [average] * len(rewards)) / math.sqrt(len(rewards)),
        "min_reward": min(rewards),
        "max_reward": max(rewards),
        "total_samples": len(rewards),
        **(pass_rate(rewards, pass_threshold) if pass_threshold is not None else {}),
    }


def _plan(rows: Iterable[Mapping[str, Any]]) -> _Plan:
    plan = _Plan({}, {})
    keys = []
    for row in rows:
        key = key_of(row)
        keys.append(key)
        plan.agents[key] = _agent_name(row)
        plan.samples.setdefault(key.task, row)
    require_distinct(keys, "input rows")
    return plan


def _agent_name(row: Mapping[str, Any]) -> str | None:
    agent_ref = row.get(AGENT_REF_KEY_NAME)
    return agent_ref.get("name") if isinstance(agent_ref, Mapping) else None


def _require_match(plan: _Plan, measured: Sequence[Measured], allow_partial: bool) -> None:
    finished = {one.key for one in measured}
    extra = finished - plan.agents.keys()
    if extra:
        raise ValueError(
            f"{len(extra)} rollouts have no input row: {listed(extra)}\n"
            f"hint: give the materialized inputs of the same run as the rollouts"
        )
    missing = plan.agents.keys() - finished
    if missing and not allow_partial:
        raise ValueError(
            f"{len(missing)} of {len(plan.agents)} rollouts are missing: {listed(missing)}\n"
            f"hint: play what is left with --resume, or profile what is there with `+allow_partial_rollouts=true`"
        )


def _task_entry(
    task: int, measured: Sequence[Measured], sample: Mapping[str, Any], expected: int, pass_threshold: float | None
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        TASK_INDEX_KEY_NAME: task,
        **describe_fields((one.fields() for one in measured), histograms=True),
        "sample": dict(sample),
        **counts_and_infos(measured, expected),
    }
    if pass_threshold is not None:
        rewards = [one.numbers[REWARD_KEY_NAME] for one in measured if REWARD_KEY_NAME in one.numbers]
        entry |= pass_rate(rewards, pass_threshold)
    return entry


def _agent_entries(plan: _Plan, measured: Sequence[Measured]) -> list[dict[str, Any]]:
    of_agent: dict[str | None, list[Measured]] = {}
    for one in measured:
        of_agent.setdefault(plan.agents[one.key], []).append(one)
    return [
        {
            AGENT_REF_KEY_NAME: {"name": name},
            **describe_fields((one.fields() for one in of_agent[name]), histograms=True),
        }
        for name in sorted(of_agent, key=lambda name: name or "")
    ]
