# SPDX-License-Identifier: Apache-2.0
"""Recorded rollouts, found by what the model was asked: an index that is built once and looked up by hash.

A request is a recorded prompt plus what the model has said since; the answer is the model's next recorded turn. What
tools answered is not compared: a recorded model does not listen.
"""

import logging
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from nemo_gym.config_types import ConfigError
from nemo_gym.item_forms import Form, describe_form, is_from_model, make_form
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body
from responses_api_models.replay_model.forms import (
    Key,
    ReplayMiss,
    count_replies,
    hash_beginnings,
    hash_prompt,
    hash_said,
    list_items,
    list_spoken_forms,
    split_turns,
)

LOG = logging.getLogger(__name__)

_MOST_PINS = 65_536
_MOST_COMPARED = 1000
_SHOWN = 200
_ATTEMPT = re.compile(r"-a\d+$")


@dataclass(frozen=True)
class Recording:
    """One rollout: the model's turns, each as the response that a model call gave."""

    key: Key
    prompt: str
    turns: tuple[NeMoGymResponse, ...]
    rollout_id: str | None
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class Asked:
    """What distinguishes repeats of one prompt, as far as a request shows it."""

    session_id: str | None = None
    rollout_id: str | None = None
    metadata: Mapping[str, str] | None = None


class Recordings:
    """The rollouts of a file."""

    def __init__(self, recordings: list[Recording], source: str) -> None:
        if not recordings:
            raise ConfigError(f"{source!r} holds no rollouts, so there is nothing to replay")
        self._all = recordings
        self._source = source
        self._prompts: dict[Key, list[Recording]] = {}
        self._next_turn: dict[tuple[Key, Key], list[tuple[Recording, int]]] = {}
        self._handed_out: dict[Key, int] = {}
        self._pins: OrderedDict[tuple[str, Key], Recording] = OrderedDict()
        for recording in recordings:
            self._add(recording)

    @classmethod
    def load(cls, path: Path) -> "Recordings":
        return cls([read_recording(row, path, line) for line, row in _read_rows(path)], str(path))

    def _add(self, recording: Recording) -> None:
        self._prompts.setdefault(recording.key, []).append(recording)
        runs = [[make_form(item) for item in turn.output] for turn in recording.turns]
        for number in range(len(runs)):
            said = hash_said(runs[:number])
            self._next_turn.setdefault((recording.key, said), []).append((recording, number))

    def find_next_turn(self, items: Any, instructions: str | None, asked: Asked) -> NeMoGymResponse:
        """Return the recorded answer to a request with these input items."""
        listed = list_items(items, instructions)
        forms = [make_form(item) for item in listed]
        beginnings = [(key, count) for key, count in hash_beginnings(forms).items() if key in self._prompts]
        for key, count in reversed(beginnings):  # the longest recorded prompt first
            said = hash_said([make_form(item) for item in turn] for turn in split_turns(listed[count:]))
            if found := self._next_turn.get((key, said)):
                recording, number = self._choose(found, asked)
                return recording.turns[number]
        raise ReplayMiss(self._explain_miss(forms, beginnings))

    def choose_any_turn(self, items: Any, instructions: str | None) -> NeMoGymResponse:
        """Return a turn of some recording, the same one whenever this conversation comes to this point."""
        listed = list_items(items, instructions)
        first_turn = next((i for i, item in enumerate(listed) if is_from_model(item)), len(listed))
        key = hash_prompt(make_form(item) for item in listed[:first_turn])
        recording = self._all[int.from_bytes(key) % len(self._all)]
        spoken_turns = [list_spoken_forms(turn.output) for turn in recording.turns]
        position = count_replies(lambda number: spoken_turns[number % len(spoken_turns)], listed)
        return recording.turns[position % len(recording.turns)]

    def _choose(self, found: list[tuple[Recording, int]], asked: Asked) -> tuple[Recording, int]:
        """Return one of several recordings that fit: the request's own, or else the next in the order of the file."""
        if len(found) == 1:
            return found[0]
        key = found[0][0].key
        number = found[0][1]
        choice = self._find_own(found, asked)
        if choice is None:
            same = [f for f in found if f[0].metadata == (asked.metadata or {})] or found
            turn = self._handed_out.get(key, 0) if number == 0 else 0
            choice = same[turn % len(same)]
            if number == 0:
                self._handed_out[key] = turn + 1
        if asked.session_id is not None:
            self._pin((asked.session_id, key), choice[0])
        return choice

    def _find_own(self, found: list[tuple[Recording, int]], asked: Asked) -> tuple[Recording, int] | None:
        wanted = None if asked.rollout_id is None else _ATTEMPT.sub("", asked.rollout_id)
        by_id = next((f for f in found if wanted is not None and f[0].rollout_id == wanted), None)
        if by_id is not None or found[0][1] == 0:
            return by_id
        pinned = self._pins.get((asked.session_id or "", found[0][0].key))
        return next((f for f in found if f[0] is pinned), None)

    def _pin(self, pin: tuple[str, Key], recording: Recording) -> None:
        self._pins[pin] = recording
        self._pins.move_to_end(pin)
        if len(self._pins) > _MOST_PINS:
            self._pins.popitem(last=False)

    def _explain_miss(self, forms: list[Form], beginnings: list[tuple[Key, int]]) -> str:
        if beginnings:
            recorded = self._prompts[beginnings[-1][0]]
            return (
                f"the prompt {recorded[0].prompt!r} is in {self._source!r}, but not with what the model has answered "
                f"since; the last item is {describe_form(forms[-1])[:_SHOWN]!r}.\n"
                f"its {len(recorded)} recorded rollouts have {[len(r.turns) for r in recorded]} model turns.\n"
                "hint: a replayed conversation passes the model's items on unchanged, and ends where the recording does"
            )
        asked = _excerpt_prompt(forms)
        nearest = max(
            list(self._prompts.values())[:_MOST_COMPARED],
            key=lambda recorded: SequenceMatcher(None, asked, recorded[0].prompt).quick_ratio(),
        )[0].prompt
        return (
            f"no rollout in {self._source!r} begins with this prompt: {asked!r}\n"
            f"nearest recorded prompt: {nearest!r}\n"
            f"hint: system messages and instructions count too; `on_miss: cycle` answers any prompt"
        )


def _excerpt_prompt(forms: list[Form]) -> str:
    """Return the last thing that a user said, cut for a message."""
    users = [shape for shape in forms if shape[:2] == ("message", "user")]
    return describe_form((users or forms or [("message", "")])[-1]).removeprefix("user ")[:_SHOWN]


def _read_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the lines of `path` with their numbers; a last line that was cut off while being written does not count."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise ConfigError(f"cannot read the recorded rollouts {str(path)!r}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield number, orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if number == len(lines) and not line.endswith(b"\n"):
                LOG.warning("%s: line %d is cut off and left out", path, number)
                return
            raise ConfigError(f"{str(path)!r}, line {number}, is not JSON: {error}") from error


def read_recording(row: Any, path: Path, line: int) -> Recording:
    """Return the rollout in a line of the file."""
    where = f"{str(path)!r}, line {line},"
    params = row.get("responses_create_params") if isinstance(row, dict) else None
    if not isinstance(params, dict) or "input" not in params or not isinstance(row.get("response"), dict):
        raise ConfigError(
            f"{where} is not a rollout: it needs objects `responses_create_params` (with `input`) and `response`.\n"
            "hint: replay the output of `gym eval run`, not its inputs or its failures"
        )
    try:
        whole = NeMoGymResponse.model_validate(row["response"])
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors()[:3])
        raise ConfigError(f"{where} holds a response that cannot be replayed: {problems}") from error
    if not (recorded := _split_response(whole)):
        raise ConfigError(f"{where} holds a response without anything from the model")
    forms = [make_form(item) for item in list_items(params["input"], params.get("instructions"))]
    rollout_id = maybe_rollout_id_from_run_body({**row, "_ng_attempt_index": None})
    return Recording(hash_prompt(forms), _excerpt_prompt(forms), recorded, rollout_id, params.get("metadata") or {})


def _split_response(whole: NeMoGymResponse) -> tuple[NeMoGymResponse, ...]:
    """Return a response per model call. How it ended and what it cost in all belongs to the last one."""
    parts = split_turns(whole.output)
    earlier = {"usage": None, "incomplete_details": None, "status": "completed"}
    return tuple(
        whole.model_copy(
            update={"output": part, **(earlier | {"id": f"{whole.id}_{number}"} if part is not parts[-1] else {})}
        )
        for number, part in enumerate(parts)
    )
