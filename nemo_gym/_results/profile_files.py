# SPDX-License-Identifier: Apache-2.0
"""Write reward profiles of finished runs: how the rollouts of every task came out, and how every agent did.

There are two formats: that of `eval profile`, and the dataset of `ng_profile`, whose rows are the tasks with the
statistics of their rewards. An input row is read when its task is written, so that memory stays small.
"""

import os
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path

import orjson

from nemo_gym._results.metrics.describe import Number
from nemo_gym._results.metrics.rollout_metrics import MeasuredRollout, ResultsError, group_by_task, list_rewards
from nemo_gym._results.metrics.task_profile import (
    describe_agents,
    make_entry,
    make_sample,
    require_match,
    summarize_rewards,
)
from nemo_gym._results.result_rows import (
    AgentRollouts,
    open_results,
    read_agent_name,
    read_results,
    read_rollouts,
    require_distinct,
)
from nemo_gym._rollouts.compact import NumbersByDigest, digest_of
from nemo_gym._rollouts.input_lines import read_input
from nemo_gym._rollouts.outcomes import Key, Row
from nemo_gym._util.atomic_files import atomic_writer, write_atomically
from nemo_gym._util.jsonl_files import loads_line, write_rows
from nemo_gym._util.row_keys import REWARD_KEY_NAME, TASK_INDEX_KEY_NAME

_MOST_NAMED = 10
_BUFFER_BYTES = 1 << 14


@dataclass(frozen=True)
class WrittenProfile:
    """A profile in files, and the rewards that it describes."""

    tasks: Path
    """A line for each task in `order`: `<stem>_reward_profiling.jsonl`, or the dataset with statistics."""
    agents: Path | None
    """`<stem>_agent_metrics.json`; none for a dataset."""
    n_scored: int
    n_requested: int
    rewards: Mapping[int, Sequence[Number]]
    """The rewards of every task that has some."""
    order: Sequence[int]

    @property
    def n_tasks(self) -> int:
        return len(self.order)

    def read_samples(self, wanted: Collection[int]) -> dict[int, Row]:
        """Return the input rows of these tasks."""
        with open_results(self.tasks) as file:
            lines = zip(self.order, file, strict=True)
            rows = {task: orjson.loads(line) for task, line in lines if task in wanted}
        if self.agents is None:
            return rows
        return {task: entry["sample"] for task, entry in rows.items()}


@dataclass(frozen=True)
class _PlannedTasks:
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
    agents: Sequence[AgentRollouts] | None = None,
) -> WrittenProfile:
    """Profile the rollouts file `rollouts` of the plan `inputs`, into two files beside it.

    `agents`: the content of the rollouts file, if the caller has read it already. Raise ResultsError unless the scored
    rollouts are the planned ones; with `allow_partial`, some may be missing.
    """
    if not os.path.exists(inputs):
        raise ResultsError(
            f"there is no {os.fspath(inputs)!r} for the rollouts in {os.fspath(rollouts)!r}.\n"
            "It is the plan of the run, with every task as often as it was to run; `gym eval run` writes it next to "
            "its rollouts.\nhint: profile rollouts where the run wrote them, or name the plan with `--inputs FILE`"
        )
    plan = _read_plan(inputs)
    if agents is None:
        agents = read_rollouts([rollouts])
    scored = sorted(chain.from_iterable(agent.rollouts for agent in agents), key=itemgetter(0))
    require_match(plan.agents, scored, allow_partial=allow_partial)
    base = Path(rollouts)
    tasks_path = base.with_name(f"{base.stem}_reward_profiling.jsonl")
    agents_path = base.with_name(f"{base.stem}_agent_metrics.json")
    with atomic_writer(tasks_path) as file:
        for entry in _encode_tasks(inputs, plan, scored, pass_threshold):
            file.write(entry)
            file.write(b"\n")
    entries = describe_agents(plan.agents, scored)
    write_atomically(agents_path, orjson.dumps(entries, option=orjson.OPT_INDENT_2) + b"\n")
    rewards = {task: list_rewards(of_task) for task, of_task in group_by_task(scored)}
    return WrittenProfile(tasks_path, agents_path, len(scored), len(plan.agents), rewards, order=sorted(plan.samples))


def write_dataset_profile(
    tasks: str | os.PathLike[str],
    rollouts: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    pass_threshold: float | None = None,
) -> WrittenProfile:
    """Write the tasks that have rollouts, each with the statistics of its rewards, as `ng_profile` does.

    The deviation is that of the population; a rollout without a reward counts as 0.
    """
    rewards = _read_rewards(rollouts)
    order = list[int]()
    write_rows(output, _profile_tasks(tasks, rollouts, rewards, pass_threshold, order))
    n_rollouts = sum(map(len, rewards.values()))
    return WrittenProfile(Path(output), None, n_rollouts, n_rollouts, rewards, order)


def _read_plan(inputs: str | os.PathLike[str]) -> _PlannedTasks:
    agents: dict[Key, str | None] = {}
    samples: dict[int, int] = {}
    n = 0
    for line in read_results(inputs):
        n += 1
        agents[line.key] = read_agent_name(line.row)
        samples.setdefault(line.key[0], line.offset)
    if len(agents) < n:
        require_distinct(read_results(inputs))
    return _PlannedTasks(agents, Counter(map(itemgetter(0), agents)), samples)


def _encode_tasks(
    inputs: str | os.PathLike[str], plan: _PlannedTasks, scored: Sequence[MeasuredRollout], pass_threshold: float | None
) -> Iterator[bytes]:
    by_task = dict(group_by_task(scored))
    with open_results(inputs, buffer_bytes=_BUFFER_BYTES) as file:
        for task, offset in sorted(plan.samples.items()):
            file.seek(offset)
            sample = make_sample(orjson.loads(file.readline()))
            entry = make_entry(task, by_task.get(task, []), plan.expected[task], sample, pass_threshold=pass_threshold)
            yield orjson.dumps(entry)


def _read_rewards(rollouts: str | os.PathLike[str]) -> dict[int, "array[float]"]:
    rewards: dict[int, array[float]] = {}
    for line in read_results(rollouts):
        reward = line.row.get(REWARD_KEY_NAME)
        if reward is not None and not isinstance(reward, (int, float)):
            raise ResultsError(f"{line.place}: the reward is {reward!r}, which is not a number")
        rewards.setdefault(line.key[0], array("d")).append(reward or 0.0)
    return rewards


def _profile_tasks(
    tasks: str | os.PathLike[str],
    rollouts: str | os.PathLike[str],
    rewards: dict[int, "array[float]"],
    pass_threshold: float | None,
    order: list[int],
) -> Iterator[Row]:
    """Yield the rows of the output, and note in `order` which task each is."""
    left = set(rewards)
    for index, task in _number_tasks(tasks, max(rewards, default=0)):
        if index in left:
            left.discard(index)
            order.append(index)
            yield {**task, **summarize_rewards(rewards[index], pass_threshold)}
    if left:
        raise ResultsError(
            f"{os.fspath(rollouts)!r} has rollouts of tasks {sorted(left)[:_MOST_NAMED]}, which {os.fspath(tasks)!r} "
            f"does not have.\nhint: give the dataset that these rollouts were collected from"
        )


def _number_tasks(tasks: str | os.PathLike[str], highest: int) -> Iterator[tuple[int, Row]]:
    """Yield the tasks of a dataset with their indices: the index in the row, or else that of its line.

    A run gives equal lines one index. If an index is too high for that, the lines were counted one by one.
    """
    known = NumbersByDigest()
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
