# SPDX-License-Identifier: Apache-2.0
"""The scored rollouts of a run in memory, each reduced to its numbers, and the entry of a task made from them.

The entries say what `nemo_gym._metrics` says of the same rows, at a speed fit for hundreds of thousands. Rows that
carry no score are counted and left out: a failure is no zero.
"""

import functools
import logging
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Any, NamedTuple

from nemo_gym._metrics.describe import STATISTICS, Number, describe, describe_fields
from nemo_gym._results.rows import Place, SeenKeys, agent_of, key_at, placed_lines, reward_of, stripped, usage_of
from nemo_gym._rollouts.types import Key, Row
from nemo_gym._util.keys import BOOKKEEPING_PREFIX, REWARD_KEY_NAME, ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME

LOG = logging.getLogger(__name__)
_NUMBERS = (int, float)
# Sums and squares of larger numbers might overflow.
_LARGE = 1e150


class Run(NamedTuple):
    """One scored rollout."""

    key: Key
    numbers: dict[str, Number]
    """Its numeric fields and token counts; a field of the verifier wins over a token count of the same name."""
    answer: object = None
    """What it answered, where the field that holds it is known."""

    def info(self) -> dict[str, Any]:
        """Its entry in `rollout_infos`."""
        task, rollout = self.key
        return {
            "rollout_id": f"{task}:{rollout}",
            TASK_INDEX_KEY_NAME: task,
            ROLLOUT_INDEX_KEY_NAME: rollout,
            REWARD_KEY_NAME: self.numbers[REWARD_KEY_NAME],
            **self.numbers,
        }


@dataclass
class AgentRuns:
    """The scored rollouts of one agent, in order of task and rollout."""

    agent: str | None
    runs: list[Run] = field(default_factory=list)
    n_unscored: int = 0
    """Rows of the files that hold no score."""
    rows: list[tuple[Key, Row]] = field(default_factory=list)
    """The stripped rows themselves, where they were asked for."""

    def tasks(self) -> Iterator[tuple[int, list[Run]]]:
        for task, runs in groupby(self.runs, key=lambda run: run.key[0]):
            yield task, list(runs)


def read_runs(
    paths: Iterable[str | os.PathLike[str]],
    *,
    answer_keys: Mapping[str, str] | None = None,
    keep_rows_of: Collection[str | None] | None = (),
) -> list[AgentRuns]:
    """The rollouts of every agent, agents in order of their names.

    `answer_keys`: the field that holds the answer, by agent. `keep_rows_of`: the agents whose stripped rows are kept,
    None for all. ResultsError if a rollout occurs twice.
    """
    agents: dict[str | None, AgentRuns] = {}
    seen, known_answers = SeenKeys(), answer_keys or {}
    first_unscored: Place | None = None
    for path in paths:
        seen.begin(path)
        for line, _, row in placed_lines(path):
            key, agent = key_at(row, path, line), agent_of(row)
            seen.add(key, line)
            of_agent = agents.get(agent) or agents.setdefault(agent, AgentRuns(agent))
            if reward_of(row) is None:
                of_agent.n_unscored += 1
                first_unscored = first_unscored or Place(os.fspath(path), line)
                continue
            answer_key = known_answers.get(agent or "")
            of_agent.runs.append(Run(key, numbers_of(row), row.get(answer_key) if answer_key else None))
            if keep_rows_of is None or agent in keep_rows_of:
                of_agent.rows.append((key, stripped(row)))
    if first_unscored:
        count = sum(one.n_unscored for one in agents.values())
        LOG.warning("%d rows hold no score and are not counted; the first is %s", count, first_unscored)
    for one in agents.values():
        one.runs.sort(key=lambda run: run.key)
        one.rows.sort(key=lambda keyed: keyed[0])
    return [agents[name] for name in sorted(agents, key=lambda name: name or "")]


def numbers_of(row: Row) -> dict[str, Number]:
    """The measurements of a row as it was read from JSON, where every number is finite."""
    numbers: dict[str, Number] = {}
    for name, value in row.items():
        kind = type(value)
        if (kind is float or kind is int) and not name.startswith(BOOKKEEPING_PREFIX):
            numbers[name] = value
        elif kind is bool and not name.startswith(BOOKKEEPING_PREFIX):
            numbers[name] = int(value)
    for name, value in usage_of(row).items():
        if type(value) in _NUMBERS and name not in numbers:
            numbers[name] = value
    return numbers


def describe_runs(runs: Sequence[Run]) -> dict[str, Any]:
    """`<statistic>/<field>` of every field, as `describe_fields` gives them."""
    records = [run.numbers for run in runs]
    names = tuple(records[0])
    if len(records) == 1:
        values = [*records[0].values()]
        means = [*map(float, values)]
        return dict(zip(_labels(names), [*means, *values, *values, *means, *[0.0] * len(values)], strict=True))
    if any(len(record) != len(names) for record in records):
        return describe_fields(records)
    try:
        columns = [_describe([record[name] for record in records]) for name in names]
    except KeyError:
        return describe_fields(records)
    return dict(zip(_labels(names), chain.from_iterable(zip(*columns, strict=True)), strict=True))


def _describe(values: list[Number]) -> tuple[Number, ...]:
    """The statistics of two values or more, in the order of their names."""
    n, first = len(values), values[0]
    if values.count(first) == n:
        return float(first), first, first, float(first), 0.0
    ordered = sorted(values)
    if max(-ordered[0], ordered[-1]) > _LARGE:
        return tuple(describe(values).values())
    mean, middle = math.fsum(ordered) / n, n // 2
    median = float(ordered[middle]) if n % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    # The distance from the mean is the root of the sum of squares, all in C.
    return mean, ordered[-1], ordered[0], median, math.dist(ordered, [mean] * n) / math.sqrt(n - 1)


def counts_and_infos(runs: Sequence[Run], expected: int) -> dict[str, Any]:
    """How many rollouts of a task there are, how many are missing, and an entry for each."""
    return {
        "num_rollouts": len(runs),
        "expected_num_rollouts": expected,
        "missing_num_rollouts": expected - len(runs),
        "reward_profile_completion_pct": 100.0 * len(runs) / expected,
        "rollout_infos": [run.info() for run in runs],
    }


def rewards_of(runs: Iterable[Run]) -> list[Number]:
    return [run.numbers[REWARD_KEY_NAME] for run in runs]


def are_binary(rewards: Sequence[Number]) -> bool:
    """Whether all are 0 or 1."""
    return rewards.count(0) + rewards.count(1) == len(rewards)


@functools.lru_cache(maxsize=256)
def _labels(names: tuple[str, ...]) -> list[str]:
    return [f"{statistic}/{name}" for statistic in STATISTICS for name in names]
