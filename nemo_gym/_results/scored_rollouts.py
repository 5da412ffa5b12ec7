# SPDX-License-Identifier: Apache-2.0
"""Read rollouts files into memory: the scored rollouts of every agent, each reduced to its numbers.

Rows that carry no score are counted and left out: a failure is no zero.
"""

import logging
import os
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter

from nemo_gym._metrics.rollouts import MeasuredRollout, NumberReader
from nemo_gym._results.incidents import Incidents
from nemo_gym._results.rows import Place, SeenKeys, agent_of, read_results, require_key, reward_of, strip_row
from nemo_gym._rollouts.types import Key, Row
from nemo_gym._util.row_keys import REWARD_KEY_NAME

LOG = logging.getLogger(__name__)

NotePlace = Callable[[Key, int, int, int], None]
"""Told of every row: its key, the number of its file, and the byte offset and size of its line."""
_Read = tuple[str | os.PathLike[str], list[Key], "array[int]"]
"""A file, and the key and the line of every row in it."""


@dataclass
class AgentRollouts:
    """The scored rollouts of one agent, in order of task and rollout."""

    agent: str | None
    rollouts: list[MeasuredRollout] = field(default_factory=list)
    n_unscored: int = 0
    """Rows of the files that hold no score."""
    rows: list[tuple[Key, Row]] = field(default_factory=list)
    """The stripped rows themselves, where they were asked for."""
    incidents: Incidents = field(default_factory=Incidents)
    """What happened in the scored rollouts."""


def read_rollouts(
    paths: Iterable[str | os.PathLike[str]],
    *,
    answer_keys: Mapping[str, str] | None = None,
    keep_rows_of: Collection[str | None] | None = (),
    note_place: NotePlace | None = None,
) -> list[AgentRollouts]:
    """Return the rollouts of every agent, agents in order of their names.

    `answer_keys`: the field that holds the answer, by agent. `keep_rows_of`: the agents whose stripped rows are kept,
    None for all. `note_place`: is told where every row stands, and whether one occurs twice is then up to its owner;
    otherwise that is a ResultsError.
    """
    agents: dict[str | None, AgentRollouts] = {}
    read, unscored = list[_Read](), list[Place]()
    read_numbers, known_answers = NumberReader().read, answer_keys or {}
    for shard, path in enumerate(paths):
        keys, lines = list[Key](), array("Q")
        read.append((path, keys, lines))
        for line, offset, size, row in read_results(path):
            key, agent = require_key(row, path, line), agent_of(row)
            if note_place is None:
                keys.append(key)
                lines.append(line)
            else:
                note_place(key, shard, offset, size)
            of_agent = agents.get(agent) or agents.setdefault(agent, AgentRollouts(agent))
            if reward_of(row) is None:
                of_agent.n_unscored += 1
                unscored = unscored or [Place(os.fspath(path), line)]
                continue
            of_agent.incidents.add(row)
            fields, values = read_numbers(row)
            answer_key = known_answers.get(agent or "")
            answer = row.get(answer_key) if answer_key else None
            of_agent.rollouts.append(MeasuredRollout(key, +row[REWARD_KEY_NAME], fields, values, answer))
            if keep_rows_of is None or agent in keep_rows_of:
                of_agent.rows.append((key, strip_row(row)))
    _require_distinct(read)
    if unscored:
        count = sum(one.n_unscored for one in agents.values())
        LOG.warning("%d rows hold no score and are not counted; the first is %s", count, unscored[0])
    for one in agents.values():
        one.rollouts.sort(key=itemgetter(0))
        one.rows.sort(key=itemgetter(0))
    return [agents[name] for name in sorted(agents, key=lambda name: name or "")]


def _require_distinct(read: Sequence[_Read]) -> None:
    if len(set(chain.from_iterable(keys for _, keys, _ in read))) < sum(len(keys) for _, keys, _ in read):
        seen = SeenKeys()
        for path, keys, lines in read:
            seen.begin(path)
            for key, line in zip(keys, lines, strict=True):
                seen.add(key, line)  # raises, naming both places
