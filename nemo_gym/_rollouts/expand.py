# SPDX-License-Identifier: Apache-2.0
"""The plan of a run: turn input lines into rows with an agent, merged create params, a task index and a rollout index.

All rows are checked before any is run, in one pass and with constant memory: the plan goes to a draft file, which
replaces the real one only when the run begins. Other modules read the lines and know what has already run.
"""

import hashlib
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic import ValidationError

from nemo_gym._config.problems import explain
from nemo_gym._data.dataset_rows import BadRow, Offending
from nemo_gym._rollouts.compact import KeySet, NumbersByDigest, TaskCounts, digest_of
from nemo_gym._rollouts.outcomes import Row
from nemo_gym._rollouts.run_manifest import Shard
from nemo_gym._rollouts.run_paths import RunPaths, write_error
from nemo_gym._util.jsonl_files import dumps_line
from nemo_gym._util.nearest import did_you_mean, nearest_spelling
from nemo_gym._util.row_keys import (
    AGENT_REF_KEY_NAME,
    RESPONSES_CREATE_PARAMS_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    SKILLS_REF_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.errors import ConfigError, GymError

DEFAULT_REPEATS_KEY = "_default"
_BUFFER_BYTES = 1 << 20
_REASONS_TOLD = 20
_RANGES_TOLD = 20


class BadRows(GymError, ValueError):
    """Some input rows cannot be run."""


@dataclass(frozen=True)
class ExpandSettings:
    """How input lines become rollouts."""

    agent_name: str | None = None
    """The agent of rows that name none; by default the only one in `known_agents`."""
    limit: int | None = None
    """How many lines to take from the top; by default all."""
    repeats: int | Mapping[str, int] = 1
    """Rollouts per line: a number, or one per agent, with `_default` for agents that are not listed."""
    add_seed: bool = False
    """Send the rollout index to the model as the sampling seed."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Create params that override those of every row, key by key."""
    prompt: Callable[[Row], Row] | None = None
    """Fills in a row's prompt; if it raises a GymError, the row cannot be run."""
    skills_ref: Mapping[str, Any] | None = None
    """The skills that every row is given."""
    shard: Shard | None = None
    """Take only the tasks of this shard; the others are still numbered."""
    known_agents: Collection[str] | None = None
    """The agents that a row may name; None means any."""


@dataclass(frozen=True)
class Plan:
    """Describes the draft of the materialized inputs."""

    rollouts: int
    tasks: int
    agents: Mapping[str, int]
    """Number of rollouts per agent."""
    per_task: Mapping[int, int]
    """Number of rollouts per task."""
    sha256: str
    warnings: tuple[str, ...]


def materialize(
    lines: Iterable[tuple[int, bytes]], settings: ExpandSettings, source: str | os.PathLike[str], paths: RunPaths
) -> Plan:
    """Write the plan to `paths.materialized_draft`; if any row cannot be run, raise BadRows and leave no draft."""
    draft = paths.materialized_draft
    try:
        draft.parent.mkdir(parents=True, exist_ok=True)
        with open(draft, "wb", buffering=_BUFFER_BYTES) as file:
            plan = _write(expand(lines, settings, source), settings, file.write)
            file.flush()
            os.fsync(file.fileno())
        if not plan.rollouts and settings.shard is not None:
            raise BadRows(
                f"shard {settings.shard} of {source} holds no task.\nhint: use fewer shards, and check "
                f"that their `{TASK_INDEX_KEY_NAME}`, if rows have one, count from 0 without gaps"
            )
        if not plan.rollouts:
            raise BadRows(f"{source} holds no rows: there is nothing to run.\nhint: use JSONL, with one row per line")
        return plan
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, GymError):
            raise write_error(draft, error, "make room there, or choose another output; nothing was started") from error
        raise


def expand(
    lines: Iterable[tuple[int, bytes]], settings: ExpandSettings, source: str | os.PathLike[str]
) -> Iterator[Row]:
    """Yield the rollouts of `lines`, with a line's repeats next to each other.

    After the first bad row, the rest is only checked, and BadRows reports all bad rows at the end. So a consumer must
    not act on any row before it has seen the last one; see `materialize`.
    """
    _check_overrides(settings.overrides)
    problems = Offending(str(source), most_reasons=_REASONS_TOLD, most_ranges=_RANGES_TOLD)
    tasks = _Tasks()
    count = 0
    for number, raw in itertools.islice(lines, settings.limit):
        count += 1
        try:
            row = _prepare(raw, settings)
            repeats = _count_repeats(row, settings)
            task, first = tasks.take(row.get(TASK_INDEX_KEY_NAME), raw, repeats)
            if not problems and (settings.shard is None or settings.shard.holds(task)):
                for rollout in range(first, first + repeats):
                    yield _make_rollout(row, task, rollout, settings.add_seed)
        except BadRow as bad:
            problems.add(number, bad)
    if problems:
        head = f"{problems.count} of {count} rows of {source} cannot be run; nothing was started."
        raise BadRows("\n".join([head, *problems.describe()]))


def _check_overrides(overrides: Mapping[str, Any]) -> None:
    """Reject overrides that no row could be run with, once instead of for every row."""
    given = {"input": "", **overrides}
    try:
        NeMoGymResponseCreateParamsNonStreaming.model_validate(given)
    except ValidationError as error:
        lines = []
        for path, text in explain(error, given).items():
            line = f"`{RESPONSES_CREATE_PARAMS_KEY_NAME}.{'.'.join(path)}` {text}"
            close = nearest_spelling(path[0], NeMoGymResponseCreateParamsNonStreaming.model_fields, limit=1)
            if close and path[0] != close[0]:
                line += f". Did you mean {close[0]!r}?"
            lines.append(line)
        raise ConfigError("\n".join(lines)) from None


def _write(rows: Iterator[Row], settings: ExpandSettings, write: Callable[[bytes], object]) -> Plan:
    rollouts = tasks = 0
    agents = Counter[str]()
    per_task = TaskCounts()
    digest = hashlib.sha256()
    for row in rows:
        line = dumps_line(row)
        write(line)
        digest.update(line)
        rollouts += 1
        tasks += row[ROLLOUT_INDEX_KEY_NAME] == 0
        per_task.add(row[TASK_INDEX_KEY_NAME], 1)
        agents[row[AGENT_REF_KEY_NAME]["name"]] += 1
    warnings = tuple(find_unused_repeats(settings, agents))
    return Plan(rollouts, tasks, agents, per_task, digest.hexdigest(), warnings)


def find_unused_repeats(settings: ExpandSettings, agents: Collection[str]) -> Iterator[str]:
    """Yield a warning for every agent that has repeats of its own and no row."""
    if isinstance(settings.repeats, Mapping):
        for name in settings.repeats.keys() - {DEFAULT_REPEATS_KEY, *agents}:
            yield f"num_repeats names agent {name!r}, which no row uses. {did_you_mean(name, agents)}".rstrip()


def _prepare(raw: bytes, settings: ExpandSettings) -> Row:
    """Return the row on a line, complete except for its indices."""
    row = _parse(raw)
    params = row.get(RESPONSES_CREATE_PARAMS_KEY_NAME)
    if params is not None and not isinstance(params, dict):
        raise BadRow((f"`{RESPONSES_CREATE_PARAMS_KEY_NAME}` is not an object",))
    if settings.prompt is not None:
        try:
            row = dict(settings.prompt(row))
        except GymError as error:
            raise BadRow((str(error),)) from error
        params = row.get(RESPONSES_CREATE_PARAMS_KEY_NAME)
    if params is None:
        raise BadRow((f"no `{RESPONSES_CREATE_PARAMS_KEY_NAME}`",))
    row[AGENT_REF_KEY_NAME] = _choose_agent(row, settings)
    row[RESPONSES_CREATE_PARAMS_KEY_NAME] = params = _check_params({**params, **settings.overrides})
    if settings.add_seed:
        _read_extra_body(params.get("metadata") or {})
    if settings.skills_ref is not None:
        row[SKILLS_REF_KEY_NAME] = dict(settings.skills_ref)
    return row


def _parse(raw: bytes) -> Row:
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRow(("not JSON",), f"{error.msg}, column {error.colno}") from None
    if not isinstance(row, dict):
        raise BadRow(("not a JSON object",))
    return row


def _check_params(params: Row) -> Row:
    """Check `params` and return them unchanged: the plan must not add the request model's defaults."""
    try:
        NeMoGymResponseCreateParamsNonStreaming.model_validate(params)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        first = problems[0]
        # Item 7 in one row and item 9 in the next are the same mistake: positions would give every row its own reason.
        place = ".".join("*" if isinstance(part, int) else part for part in first["loc"])
        reason = f"`{RESPONSES_CREATE_PARAMS_KEY_NAME}.{place}`: {first['msg']}"
        if len(problems) > 1:
            reason += f" (and {len(problems) - 1} more)"
        raise BadRow((reason,)) from None
    return params


def _choose_agent(row: Row, settings: ExpandSettings) -> Row:
    ref = row.get(AGENT_REF_KEY_NAME)
    if ref is None:
        ref = {"name": settings.agent_name or _find_only_agent(settings.known_agents)}
    if not isinstance(ref, dict) or not isinstance(ref.get("name"), str) or not ref["name"]:
        raise BadRow((f"`{AGENT_REF_KEY_NAME}` has no `name`",))
    name = ref["name"]
    if settings.known_agents is not None and name not in settings.known_agents:
        raise BadRow((f"no server is called {name!r}. {did_you_mean(name, settings.known_agents)}".rstrip(),))
    return dict(ref)


def _find_only_agent(known: Collection[str] | None) -> str:
    if known is not None and len(known) == 1:
        return next(iter(known))
    option = "`--agent`, which is `agent_name`"
    if known:
        option += f" (one of {', '.join(sorted(known))})"
    raise BadRow((f'no agent: choose one with {option}, or give each row its `{AGENT_REF_KEY_NAME}: {{"name": …}}`',))


def _count_repeats(row: Row, settings: ExpandSettings) -> int:
    if isinstance(settings.repeats, int):
        return settings.repeats
    agent = row[AGENT_REF_KEY_NAME]["name"]
    repeats = settings.repeats.get(agent, settings.repeats.get(DEFAULT_REPEATS_KEY))
    if repeats is None:
        raise BadRow((f"`num_repeats` lists neither agent {agent!r} nor `{DEFAULT_REPEATS_KEY}`",))
    return repeats


def _make_rollout(row: Row, task: int, rollout: int, add_seed: bool) -> Row:
    params = dict(row[RESPONSES_CREATE_PARAMS_KEY_NAME])
    if add_seed:
        metadata = params.get("metadata") or {}
        extra_body = json.dumps({**_read_extra_body(metadata), "seed": rollout})
        params["metadata"] = {**metadata, "extra_body": extra_body}
    return {
        **row,
        RESPONSES_CREATE_PARAMS_KEY_NAME: params,
        TASK_INDEX_KEY_NAME: task,
        ROLLOUT_INDEX_KEY_NAME: rollout,
    }


def _read_extra_body(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the request's fields beyond the parameters of the Responses API."""
    try:
        extra = json.loads(metadata.get("extra_body") or "{}")
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise BadRow(("`metadata.extra_body` is not the JSON text of an object, so no seed can be added to it",))
    return extra


class _Tasks:
    """Tracks which task a line belongs to, and how many rollouts that task has so far."""

    def __init__(self) -> None:
        self._numbered = NumbersByDigest()
        self._ours = KeySet()
        self._rollouts = TaskCounts()
        self._next = 0

    def take(self, given: object, raw: bytes, repeats: int) -> tuple[int, int]:
        """Return the task index, and the index of the first of `repeats` more rollouts."""
        if given is None:
            task = self._find_index(raw)
        else:
            task = self._check_index(given)
        first = self._rollouts[task]
        self._rollouts.add(task, repeats)
        return task, first

    def _find_index(self, raw: bytes) -> int:
        digest = digest_of(raw)
        task = self._numbered.find(digest)
        if task is None:
            while self._rollouts[self._next]:
                self._next += 1
            task = self._next
            self._numbered.add(digest, task)
            self._ours.add((task, 0))
        return task

    def _check_index(self, given: object) -> int:
        if not isinstance(given, int) or isinstance(given, bool) or given < 0:
            raise BadRow((f"`{TASK_INDEX_KEY_NAME}` is not a whole number from 0 up",))
        if (given, 0) in self._ours:
            taken = "is already taken by an earlier row without an index; number all rows, or none"
            raise BadRow((f"`{TASK_INDEX_KEY_NAME}` {taken}",))
        return given
