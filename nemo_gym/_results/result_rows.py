# SPDX-License-Identifier: Apache-2.0
"""Read rollouts files: row by row, or as the scored rollouts of every agent, each reduced to its numbers.

Rows without a score are counted and left out: a failure is not a zero. Scored rollouts in which a tool crashed, or that
were cut off, are counted as incidents.
"""

import glob
import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from nemo_gym._results.metrics.rollout_metrics import MeasuredRollout, NumberReader, ResultsError, read_usage
from nemo_gym._rollouts.incidents import pick_tool_errors
from nemo_gym._rollouts.outcomes import Key, Row
from nemo_gym._util.json_shapes import as_mapping
from nemo_gym._util.jsonl_files import parse_lines
from nemo_gym._util.masked_rows import has_no_measurement
from nemo_gym._util.row_keys import (
    AGENT_REF_KEY_NAME,
    BULKY_KEYS,
    NG_CUT_OFF_KEY,
    NG_FAILURE_CLASS_KEY,
    NG_TOOL_ERRORS_KEY,
    RESPONSE_KEY_NAME,
    REWARD_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
    TOKEN_DRIFT_KEY,
)

# Lines are long: a large buffer saves a third of the reading time.
_BUFFER_BYTES = 1 << 20
_SIDECARS = ("_materialized_inputs.jsonl", "_failures.jsonl", "_reward_profiling.jsonl")
SHARDS_SHARE_NO_ROLLOUT = (
    "hint: shards of one run share no rollout: collect them with `gym eval run --shard 1/N` to `--shard N/N`, each "
    "into an output of its own; check that the pattern matches no other files, such as a merge of the same shards"
)


class Place(NamedTuple):
    """Where a row stands."""

    path: str
    line: int
    """Counts from 1."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class ResultLine(NamedTuple):
    """A row of a rollouts, failures or materialized inputs file, and where it stands."""

    path: str
    number: int
    """Of the line, from 1."""
    offset: int
    """Where its line begins, in bytes."""
    size: int
    """Of the line with its end, in bytes."""
    key: Key
    row: Row

    @property
    def place(self) -> Place:
        return Place(self.path, self.number)


def expand_globs(patterns: str | Iterable[str]) -> list[Path]:
    """Return the files that a comma-separated list of paths and wildcards names, each once, in order.

    Wildcards do not match the files that a run keeps beside its rollouts, such as `*_failures.jsonl`.
    """
    given = patterns.split(",") if isinstance(patterns, str) else list(patterns)
    found: dict[Path, Path] = {}
    for pattern in (one.strip() for one in given if one.strip()):
        if os.path.isfile(pattern):
            matches = [pattern]
        else:
            files = filter(os.path.isfile, glob.glob(os.path.expanduser(pattern), recursive=True))
            matches = sorted(path for path in files if not path.endswith(_SIDECARS))
        if not matches:
            raise ResultsError(
                f"{pattern!r} matches no rollouts file (looked in {os.getcwd()!r}).\n"
                f"hint: quote the pattern so that the shell leaves it alone, and check the folder"
            )
        for path in map(Path, matches):
            found.setdefault(path.resolve(), path)
    if not found:
        raise ResultsError("no rollouts file is named.\nhint: give a path or a pattern, such as 'results/*.jsonl'")
    return list(found.values())


def open_results(path: str | os.PathLike[str], buffer_bytes: int = _BUFFER_BYTES) -> BinaryIO:
    """Open a file to read; raise ResultsError if that fails."""
    try:
        return open(path, "rb", buffering=buffer_bytes)
    except OSError as error:
        raise ResultsError(f"{os.fspath(path)!r} cannot be read: {error.strerror}") from error


def read_results(path: str | os.PathLike[str]) -> Iterator[ResultLine]:
    """Yield every row of a file; skip a last line that was cut off, with a warning.

    A missing index counts as 0; an invalid one raises ResultsError.
    """
    name = os.fspath(path)
    with open_results(path) as file:
        for number, offset, size, row in parse_lines(file, path, torn_tail_ok=True):
            task = row.get(TASK_INDEX_KEY_NAME) or 0
            rollout = row.get(ROLLOUT_INDEX_KEY_NAME) or 0
            if not (type(task) is int and type(rollout) is int and task >= 0 and rollout >= 0):
                raise ResultsError(
                    f"{name}:{number}: {TASK_INDEX_KEY_NAME!r} is {task!r} and {ROLLOUT_INDEX_KEY_NAME!r} is "
                    f"{rollout!r}; an index is a whole number from 0 on"
                )
            yield ResultLine(name, number, offset, size, (task, rollout), row)


def strip_row(row: Row) -> Row:
    """Return the part of a row that `/aggregate_metrics` gets."""
    kept = {name: value for name, value in row.items() if name not in BULKY_KEYS}
    if usage := read_usage(row):
        kept[RESPONSE_KEY_NAME] = {"usage": usage}
    return kept


def read_agent_name(row: Mapping[str, Any]) -> str | None:
    """Return the name of the agent that played the row."""
    agent_ref = row.get(AGENT_REF_KEY_NAME)
    if isinstance(agent_ref, dict) and isinstance(name := agent_ref.get("name"), str):
        return name
    return None


def read_reward(row: Row) -> float | None:
    """Return the reward of a scored rollout; None for a failure, a masked reward, or a reward that is not a number."""
    reward = row.get(REWARD_KEY_NAME)
    if row.get(NG_FAILURE_CLASS_KEY) or has_no_measurement(row) or not isinstance(reward, (int, float)):
        return None
    return float(reward)


def format_scored(n_scored: int, n_requested: int | None) -> str:
    """Format how many rollouts a number rests on; it stands beside every number that we show."""
    return f"{n_scored} of {'?' if n_requested is None else n_requested}"


def require_distinct(lines: Iterable[ResultLine]) -> None:
    """Raise ResultsError if a rollout occurs twice, naming both places."""
    seen: dict[Key, Place] = {}
    for line in lines:
        key = line.key
        place = line.place
        if (first := seen.setdefault(key, place)) != place:
            raise ResultsError(
                f"task {key[0]}, rollout {key[1]} occurs twice: {first} and {place}.\n{SHARDS_SHARE_NO_ROLLOUT}"
            )


# --- whole files ------------------------------------------------------------------------------------------------------


LOG = logging.getLogger(__name__)

NotePlace = Callable[[Key, int, int, int], None]
"""Called for every row with its key, the number of its file, and the byte offset and size of its line."""
_TOOLS_SHOWN = 5
_MESSAGE_SHOWN = 120


@dataclass
class Incidents:
    """Counts of rollouts, not of calls: a rollout that met the same crash ten times counts once."""

    met_crash: int = 0
    tools: Counter[str] = field(default_factory=Counter)
    examples: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The first crash of every tool: its status and message."""
    cut_off: Counter[str] = field(default_factory=Counter)
    token_drift: Counter[str] = field(default_factory=Counter)
    """Rollouts whose tokens were realigned or forked, where they were handed over."""

    def add(self, row: Row) -> None:
        """Count a scored row."""
        errors = row.get(NG_TOOL_ERRORS_KEY)
        if errors and (errors := pick_tool_errors(errors)):
            self.met_crash += 1
            by_tool = {error["tool"]: error for error in reversed(errors)}
            self.tools.update(by_tool.keys())
            for tool, error in by_tool.items():
                self.examples.setdefault(tool, {"status": error["status"], "message": error["message"]})
        cut_off = row.get(NG_CUT_OFF_KEY)
        if cut_off:
            self.cut_off[str(cut_off)] += 1
        if drift := as_mapping(row.get(TOKEN_DRIFT_KEY)).get("class"):
            self.token_drift[str(drift)] += 1

    @classmethod
    def sum(cls, several: Iterable["Incidents"]) -> "Incidents":
        """Return the sum of several counts."""
        total = cls()
        for one in several:
            total.met_crash += one.met_crash
            total.tools += one.tools
            total.examples = one.examples | total.examples
            total.cut_off += one.cut_off
            total.token_drift += one.token_drift
        return total

    def as_json(self) -> dict[str, Any]:
        tools = {tool: {"rollouts": count, **self.examples[tool]} for tool, count in self.tools.most_common()}
        return {
            "tool_errors": {"rollouts": self.met_crash, "tools": tools},
            "cut_off": dict(self.cut_off.most_common()),
            **({"token_drift": dict(self.token_drift.most_common())} if self.token_drift else {}),
        }

    def describe(self, n_scored: int) -> list[str]:
        """Return a line for each kind of incident that occurred in `n_scored` rollouts."""
        said = []
        if self.met_crash:
            shown = []
            for tool, count in self.tools.most_common(_TOOLS_SHOWN):
                message = " ".join(self.examples[tool]["message"].split())
                if len(message) > _MESSAGE_SHOWN:
                    message = f"{message[:_MESSAGE_SHOWN]}…"
                shown.append(f"{tool} ×{count} ({self.examples[tool]['status']}: {message})")
            tools = ", ".join(shown)
            if len(self.tools) > _TOOLS_SHOWN:
                tools += f" and {len(self.tools) - _TOOLS_SHOWN} more tools"
            said.append(
                f"{self.met_crash} of {n_scored} rollouts met a crashed tool: {tools}; "
                f"`--fail-on-tool-error` makes them failures"
            )
        if self.cut_off:
            by_cause = ", ".join(f"{count} by {cause}" for cause, count in self.cut_off.most_common())
            said.append(f"{self.cut_off.total()} of {n_scored} rollouts were cut off: {by_cause}")
        if self.token_drift:
            by_class = ", ".join(f"{count} {name}" for name, count in self.token_drift.most_common())
            said.append(f"{self.token_drift.total()} of {n_scored} rollouts say `{TOKEN_DRIFT_KEY}`: {by_class}")
        return said


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
    """Return the rollouts of every agent, ordered by the names of the agents.

    `answer_keys`: the field that holds the answer, by agent. `keep_rows_of`: the agents whose stripped rows are kept,
    None for all. `note_place` is called with the position of every row, and must then look for repeated rollouts
    itself; without it, a repeated rollout raises ResultsError.
    """
    files = list(paths)
    agents: dict[str | None, AgentRollouts] = {}
    first_unscored: Place | None = None
    read_numbers = NumberReader().read
    known_answers = answer_keys or {}
    n_read = 0
    keys = set[Key]()
    for shard, path in enumerate(files):
        for line in read_results(path):
            key = line.key
            row = line.row
            agent = read_agent_name(row)
            if note_place is None:
                n_read += 1
                keys.add(key)
            else:
                note_place(key, shard, line.offset, line.size)
            of_agent = agents.get(agent) or agents.setdefault(agent, AgentRollouts(agent))
            if read_reward(row) is None:
                of_agent.n_unscored += 1
                first_unscored = first_unscored or line.place
                continue
            of_agent.incidents.add(row)
            fields, values = read_numbers(row)
            answer_key = known_answers.get(agent or "")
            answer = row.get(answer_key) if answer_key else None
            of_agent.rollouts.append(MeasuredRollout(key, +row[REWARD_KEY_NAME], fields, values, answer))
            if keep_rows_of is None or agent in keep_rows_of:
                of_agent.rows.append((key, strip_row(row)))
    if len(keys) < n_read:
        require_distinct(line for path in files for line in read_results(path))
    if first_unscored:
        count = sum(one.n_unscored for one in agents.values())
        LOG.warning("%d rows hold no score and are not counted; the first is %s", count, first_unscored)
    for one in agents.values():
        one.rollouts.sort(key=itemgetter(0))
        one.rows.sort(key=itemgetter(0))
    return [agents[name] for name in sorted(agents, key=lambda name: name or "")]
