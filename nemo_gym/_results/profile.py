# SPDX-License-Identifier: Apache-2.0
"""Reward profiles of finished runs, as files: how the rollouts of every task came out, and how every agent did.

Two formats: the one of `eval profile`, and the dataset of `ng_profile`, whose rows are the tasks with the statistics of
their rewards. Input rows are fetched from their file when their task is written, never held.
"""

import os
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson

from nemo_gym._metrics.describe import Number
from nemo_gym._metrics.profile import profile_dataset
from nemo_gym._results.entries import TaskEntries
from nemo_gym._results.rows import ResultsError, SeenKeys, agent_of, key_at, opened, placed_lines, planned_lines
from nemo_gym._results.runs import AgentRuns, Run, describe_runs, read_runs, rewards_of, tasks_of
from nemo_gym._rollouts.compact import Numbered, digest_of
from nemo_gym._rollouts.inputs import read_input
from nemo_gym._rollouts.types import Key, Row
from nemo_gym._util.files import atomic_writer, write_atomically
from nemo_gym._util.jsonl import loads_line, write_rows
from nemo_gym._util.row_keys import AGENT_REF_KEY_NAME, REWARD_KEY_NAME, TASK_INDEX_KEY_NAME

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
    rewards: Mapping[int, Sequence[Number]]
    """The rewards of every task that has some."""
    _order: Sequence[int]

    def read_samples(self, wanted: Collection[int]) -> dict[int, Row]:
        """Return the input rows of these tasks."""
        return {task: entry["sample"] for task, entry in _read_tasks(self.tasks, self._order, wanted)}


@dataclass(frozen=True)
class DatasetProfile:
    output: Path
    n_tasks: int
    n_rollouts: int
    rewards: Mapping[int, Sequence[Number]]
    """The rewards of every task that has some."""
    _order: Sequence[int]

    def read_samples(self, wanted: Collection[int]) -> dict[int, Row]:
        """Return the rows of these tasks."""
        return dict(_read_tasks(self.output, self._order, wanted))


@dataclass(frozen=True)
class _Plan:
    """What the materialized inputs say."""

    agents: dict[Key, str | None]
    expected: Counter[int]
    samples: dict[int, int]
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
    runs = _in_order(read_runs([rollouts]) if agents is None else agents)
    _require_match(plan, runs, allow_partial)
    base = Path(rollouts)
    tasks_path = base.with_name(f"{base.stem}_reward_profiling.jsonl")
    agents_path = base.with_name(f"{base.stem}_agent_metrics.json")
    with atomic_writer(tasks_path) as file:
        for entry in _encoded_tasks(inputs, plan, runs, pass_threshold):
            file.write(entry)
            file.write(b"\n")
    write_atomically(agents_path, orjson.dumps(_agent_entries(plan, runs), option=orjson.OPT_INDENT_2) + b"\n")
    rewards = {task: rewards_of(of_task) for task, of_task in tasks_of(runs)}
    n_tasks, n_requested = len(plan.samples), len(plan.agents)
    return ProfileFiles(tasks_path, agents_path, n_tasks, len(runs), n_requested, rewards, sorted(plan.samples))


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
    order = list[int]()
    profiled = write_rows(output, _dataset_rows(tasks, rollouts, rewards, pass_threshold, order))
    return DatasetProfile(Path(output), profiled, sum(map(len, rewards.values())), rewards, order)


def _read_tasks(path: Path, order: Sequence[int], wanted: Collection[int]) -> Iterator[tuple[int, Row]]:
    """Return the rows of some tasks from a file that has a line for each task in `order`."""
    with opened(path) as file:
        for task, line in zip(order, file, strict=True):
            if task in wanted:
                yield task, orjson.loads(line)


def _read_plan(inputs: str | os.PathLike[str]) -> _Plan:
    agents: dict[Key, str | None] = {}
    samples: dict[int, int] = {}
    n = 0
    for _, offset, key, row in planned_lines(inputs):
        n += 1
        agents[key] = agent_of(row)
        samples.setdefault(key[0], offset)
    if len(agents) < n:
        _raise_repeated(inputs)
    return _Plan(agents, Counter(map(itemgetter(0), agents)), samples)


def _raise_repeated(inputs: str | os.PathLike[str]) -> None:
    seen = SeenKeys()
    seen.begin(inputs)
    for line, _, key, _ in planned_lines(inputs):
        seen.add(key, line)


def _in_order(agents: Sequence[AgentRuns]) -> Sequence[Run]:
    if len(agents) == 1:
        return agents[0].runs
    return sorted((run for agent in agents for run in agent.runs), key=itemgetter(0))


def _require_match(plan: _Plan, runs: Sequence[Run], allow_partial: bool) -> None:
    finished = {run.key for run in runs}
    if finished == plan.agents.keys():
        return
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
            f"hint: play what is left with --resume, or profile what is there with `+allow_partial_rollouts=true`"
        )


def _listed(keys: set[Key]) -> str:
    shown = ", ".join(f"{task}:{rollout}" for task, rollout in sorted(keys)[:_SHOWN])
    return shown if len(keys) <= _SHOWN else f"{shown} and {len(keys) - _SHOWN} more"


def _encoded_tasks(
    inputs: str | os.PathLike[str], plan: _Plan, runs: Sequence[Run], pass_threshold: float | None
) -> Iterator[bytes]:
    by_task = dict(tasks_of(runs))
    entries = TaskEntries(pass_threshold)
    with opened(inputs, buffer_bytes=_BUFFER_BYTES) as file:
        for task, offset in sorted(plan.samples.items()):
            file.seek(offset)
            yield entries.encoded(task, by_task.get(task, []), plan.expected[task], file.readline().strip())


def _agent_entries(plan: _Plan, runs: Sequence[Run]) -> list[dict[str, Any]]:
    by_agent = _by_agent(plan, runs) if runs else {}
    return [
        {AGENT_REF_KEY_NAME: {"name": name}, **describe_runs(by_agent[name])}
        for name in sorted(by_agent, key=lambda name: name or "")
    ]


def _by_agent(plan: _Plan, runs: Sequence[Run]) -> Mapping[str | None, Sequence[Run]]:
    names = set(plan.agents.values())
    if len(names) == 1:
        return dict.fromkeys(names, runs)
    by_agent: dict[str | None, list[Run]] = {}
    for run in runs:
        by_agent.setdefault(plan.agents[run.key], []).append(run)
    return by_agent


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
    order: list[int],
) -> Iterator[Row]:
    """Return the rows of the output, and note in `order` which task each is."""
    left = set(rewards)
    for index, task in _numbered_tasks(tasks, max(rewards, default=0)):
        if index in left:
            left.discard(index)
            order.append(index)
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
