# SPDX-License-Identifier: Apache-2.0
"""Reward profiles of finished runs, as files: how the rollouts of every task came out, and how every agent did.

Two formats: the one of `eval profile`, and the dataset of `ng_profile`, whose rows are the tasks with the statistics of
their rewards. Input rows are fetched from their file when their task is written, never held.
"""

import os
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from nemo_gym._metrics.profile import pass_rate, profile_dataset
from nemo_gym._results.rows import ResultsError, SeenKeys, agent_of, key_at, opened, placed_lines
from nemo_gym._results.runs import AgentRuns, Run, counts_and_infos, describe_runs, read_runs, rewards_of
from nemo_gym._rollouts.compact import Numbered, digest_of
from nemo_gym._rollouts.inputs import read_input
from nemo_gym._rollouts.types import Key, Row
from nemo_gym._util.files import write_atomically
from nemo_gym._util.jsonl import loads_line, write_rows
from nemo_gym._util.keys import AGENT_REF_KEY_NAME, REWARD_KEY_NAME, TASK_INDEX_KEY_NAME

_SHOWN = 10
_BUFFER_BYTES = 1 << 14


@dataclass(frozen=True)
class ProfileFiles:
    tasks: Path
    """`<stem>_reward_profiling.jsonl`"""
    agents: Path
    """`<stem>_agent_metrics.json`"""
    n_tasks: int
    n_scored: int
    n_requested: int


@dataclass(frozen=True)
class DatasetProfile:
    output: Path
    n_tasks: int
    n_rollouts: int


@dataclass
class _Plan:
    """What the materialized inputs say."""

    agents: dict[Key, str | None] = field(default_factory=dict)
    expected: Counter[int] = field(default_factory=Counter)
    samples: dict[int, int] = field(default_factory=dict)
    """Where the first row of every task begins."""


def write_profile(
    inputs: str | os.PathLike[str],
    rollouts: str | os.PathLike[str],
    *,
    allow_partial: bool = False,
    pass_threshold: float | None = None,
    agents: Sequence[AgentRuns] | None = None,
) -> ProfileFiles:
    """Profile the rollouts file `rollouts` of the plan `inputs`; the two result files lie beside it.

    `agents`: the runs of the rollouts file, where the caller has read them already. ResultsError unless every planned
    rollout was scored and no other; with `allow_partial`, some may be missing.
    """
    plan = _read_plan(inputs)
    runs = [run for agent in (read_runs([rollouts]) if agents is None else agents) for run in agent.runs]
    runs.sort(key=lambda run: run.key)
    _require_match(plan, runs, allow_partial)
    base = Path(rollouts)
    tasks_path = base.with_name(f"{base.stem}_reward_profiling.jsonl")
    agents_path = base.with_name(f"{base.stem}_agent_metrics.json")
    write_rows(tasks_path, _task_entries(inputs, plan, runs, pass_threshold))
    write_atomically(agents_path, orjson.dumps(_agent_entries(plan, runs), option=orjson.OPT_INDENT_2) + b"\n")
    return ProfileFiles(tasks_path, agents_path, len(plan.samples), len(runs), len(plan.agents))


def write_dataset_profile(
    tasks: str | os.PathLike[str],
    rollouts: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    pass_threshold: float | None = None,
) -> DatasetProfile:
    """Write the tasks that have rollouts, each with the statistics of its rewards, as `ng_profile` does.

    The deviation is that of the population; a rollout without a reward counts as 0.
    """
    rewards = _rewards_by_task(rollouts)
    profiled = write_rows(output, _dataset_rows(tasks, rollouts, rewards, pass_threshold))
    return DatasetProfile(Path(output), profiled, sum(map(len, rewards.values())))


def _read_plan(inputs: str | os.PathLike[str]) -> _Plan:
    plan, seen = _Plan(), SeenKeys()
    seen.begin(inputs)
    for line, offset, row in placed_lines(inputs):
        key = key_at(row, inputs, line)
        seen.add(key, line)
        plan.agents[key] = agent_of(row)
        plan.expected[key[0]] += 1
        plan.samples.setdefault(key[0], offset)
    return plan


def _require_match(plan: _Plan, runs: Sequence[Run], allow_partial: bool) -> None:
    finished = {run.key for run in runs}
    extra = finished - plan.agents.keys()
    if extra:
        raise ResultsError(
            f"{len(extra)} rollouts have no input row: {_listed(extra)}\n"
            f"hint: give the materialized inputs of the same run as the rollouts"
        )
    missing = plan.agents.keys() - finished
    if missing and not allow_partial:
        raise ResultsError(
            f"{len(runs)} of {len(plan.agents)} rollouts were scored; {len(missing)} are missing: {_listed(missing)}\n"
            f"hint: finish the run with --resume, or profile what is there with `+allow_partial_rollouts=true`"
        )


def _listed(keys: set[Key]) -> str:
    shown = ", ".join(f"{task}:{rollout}" for task, rollout in sorted(keys)[:_SHOWN])
    return shown if len(keys) <= _SHOWN else f"{shown} and {len(keys) - _SHOWN} more"


def _task_entries(
    inputs: str | os.PathLike[str], plan: _Plan, runs: Sequence[Run], pass_threshold: float | None
) -> Iterator[dict[str, Any]]:
    by_task: dict[int, list[Run]] = {}
    for run in runs:
        by_task.setdefault(run.key[0], []).append(run)
    with opened(inputs, buffer_bytes=_BUFFER_BYTES) as file:
        for task, offset in sorted(plan.samples.items()):
            of_task = by_task.get(task, [])
            file.seek(offset)
            entry = describe_runs(of_task) if of_task else {}
            entry[TASK_INDEX_KEY_NAME] = task
            # The row goes out as it came in, without a detour through objects.
            entry["sample"] = orjson.Fragment(file.readline().strip())
            entry.update(counts_and_infos(of_task, plan.expected[task]))
            if pass_threshold is not None:
                entry.update(pass_rate(rewards_of(of_task), pass_threshold))
            yield entry


def _agent_entries(plan: _Plan, runs: Sequence[Run]) -> list[dict[str, Any]]:
    by_agent: dict[str | None, list[Run]] = {}
    for run in runs:
        by_agent.setdefault(plan.agents[run.key], []).append(run)
    return [
        {AGENT_REF_KEY_NAME: {"name": name}, **describe_runs(by_agent[name])}
        for name in sorted(by_agent, key=lambda name: name or "")
    ]


def _rewards_by_task(rollouts: str | os.PathLike[str]) -> dict[int, "array[float]"]:
    rewards: dict[int, array[float]] = {}
    for line, _, row in placed_lines(rollouts):
        reward = row.get(REWARD_KEY_NAME)
        if reward is not None and not isinstance(reward, (int, float)):
            raise ResultsError(f"{os.fspath(rollouts)}:{line}: the reward is {reward!r}, which is not a number")
        rewards.setdefault(key_at(row, rollouts, line)[0], array("d")).append(reward or 0.0)
    return rewards


def _dataset_rows(
    tasks: str | os.PathLike[str],
    rollouts: str | os.PathLike[str],
    rewards: dict[int, "array[float]"],
    pass_threshold: float | None,
) -> Iterator[Row]:
    left = set(rewards)
    for index, task in _numbered_tasks(tasks, max(rewards, default=0)):
        if index in left:
            left.discard(index)
            results = [{REWARD_KEY_NAME: reward} for reward in rewards[index]]
            yield from profile_dataset([task], results, pass_threshold)
    if left:
        raise ResultsError(
            f"{os.fspath(rollouts)!r} speaks of tasks {sorted(left)[:_SHOWN]}, which {os.fspath(tasks)!r} does not "
            f"have.\nhint: give the dataset that these rollouts were collected from"
        )


def _numbered_tasks(tasks: str | os.PathLike[str], highest: int) -> Iterator[tuple[int, Row]]:
    """The tasks of a dataset with their indices: the one they carry, else that of their line.

    A run gives equal lines one index. Only where an index is too high for that were the lines counted one by one.
    """
    known = Numbered()
    distinct = 0
    for _, raw in read_input(tasks):
        if known.find(digest := digest_of(raw)) is None:
            known.add(digest, distinct)
            distinct += 1
    by_line = highest >= distinct
    for position, (number, raw) in enumerate(read_input(tasks)):
        task = loads_line(raw, tasks, number)
        carried = task.get(TASK_INDEX_KEY_NAME)
        index = position if by_line else known.find(digest_of(raw))
        yield (carried if isinstance(carried, int) else index or 0), task
