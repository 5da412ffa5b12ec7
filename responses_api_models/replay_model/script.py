# SPDX-License-Identifier: Apache-2.0
"""Replies that somebody wrote down: the first turn of every conversation gets the first one, and so on.

A reply is a text, an object with any of `reasoning`, `text`, `tool_calls` and `usage`, or a whole response with
`output`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import yaml
from pydantic import ValidationError

from nemo_gym.config_types import ConfigError
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from responses_api_models.replay_model.forms import ReplayMiss, count_replies, list_spoken_forms

_ECHO = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
_SHORT = frozenset({"reasoning", "text", "tool_calls", "usage"})


class Script:
    """A list of replies for every conversation."""

    def __init__(self, replies: list[Any], source: str, *, starts_over: bool) -> None:
        if not replies:
            raise ConfigError(f"the script in {source} holds no replies")
        self._source = source
        self._starts_over = starts_over
        self._replies = [_check_reply(reply, f"reply {number} of {source}") for number, reply in enumerate(replies, 1)]

    @classmethod
    def load(cls, path: Path, *, starts_over: bool) -> "Script":
        return cls(_read(path), repr(str(path)), starts_over=starts_over)

    def make_next_turn(self, asked: NeMoGymResponseCreateParamsNonStreaming, model: str) -> NeMoGymResponse:
        """Return the reply to a conversation that holds as many replies as it does."""
        items = [] if isinstance(asked.input, str) else asked.input
        position = count_replies(lambda number: list_spoken_forms(self._get_reply(number)["output"]), items)
        if position >= len(self._replies) and not self._starts_over:
            raise ReplayMiss(
                f"the script in {self._source} has {len(self._replies)} replies, and this conversation holds all of "
                "them already.\nhint: add a reply, or set `on_miss: cycle` to start over"
            )
        echo = {name: getattr(asked, name) for name in _ECHO}
        return NeMoGymResponse.model_validate({**echo, **self._get_reply(position), "model": model})

    def _get_reply(self, position: int) -> dict[str, Any]:
        return _build_response(self._replies[position % len(self._replies)], position)


def _read(path: Path) -> list[Any]:
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"cannot read the script {str(path)!r}: {error.strerror}") from error
    if path.suffix != ".jsonl":
        return _read_yaml(text, path)
    replies = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            replies += [orjson.loads(line)] if line.strip() else []
        except orjson.JSONDecodeError as error:
            raise ConfigError(f"{str(path)!r}, line {number}, is not JSON: {error}") from error
    return replies


def _read_yaml(text: str, path: Path) -> list[Any]:
    try:
        replies = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"the script {str(path)!r} is not YAML: {error}") from error
    if isinstance(replies, list):
        return replies
    raise ConfigError(f"the script {str(path)!r} must be a list of replies, not {type(replies).__name__}")


def _check_reply(reply: Any, where: str) -> Mapping[str, Any]:
    """Return `reply` as an object, known to make a valid response."""
    entry = {"text": reply} if isinstance(reply, str) else reply
    if not isinstance(entry, Mapping) or not entry or not ("output" in entry or _SHORT.issuperset(entry)):
        found = ", ".join(map(repr, entry)) if isinstance(entry, Mapping) else type(entry).__name__
        raise ConfigError(
            f"{where} is neither a text, nor an object of {', '.join(sorted(_SHORT))}, nor a response with `output`: "
            f"{found or 'an empty object'}"
        )
    try:
        response = NeMoGymResponse.model_validate({**_ECHO, **_build_response(entry, 0), "model": ""})
    except (ValidationError, KeyError, TypeError) as error:
        raise ConfigError(f"{where} does not make a response: {error}") from error
    if not response.output:
        raise ConfigError(f"{where} says nothing: a reply has at least one item")
    return entry


def _build_response(entry: Mapping[str, Any], position: int) -> dict[str, Any]:
    """Return `entry` as the response of turn `position`, which is part of its ids: a script may start over."""
    given = (
        dict(entry) if "output" in entry else {"output": _build_items(entry, position), "usage": _build_usage(entry)}
    )
    return {
        "id": f"resp_replay_{position}",
        "created_at": 0,
        "object": "response",
        "status": "completed",
        **given,
    }


def _build_items(entry: Mapping[str, Any], position: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if entry.get("reasoning"):
        summary = [{"type": "summary_text", "text": entry["reasoning"]}]
        items.append({"type": "reasoning", "id": f"rs_replay_{position}", "summary": summary})
    if "text" in entry:
        content = [{"type": "output_text", "text": entry["text"], "annotations": []}]
        items.append({"type": "message", "id": f"msg_replay_{position}", "role": "assistant", "content": content})
    return items + [_call(call, f"call_replay_{position}_{n}") for n, call in enumerate(entry.get("tool_calls") or [])]


def _call(call: Mapping[str, Any], default_id: str) -> dict[str, Any]:
    arguments = call.get("arguments", {})
    call_id = call.get("call_id", default_id)
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return {"type": "function_call", "id": call_id, "call_id": call_id, "name": call["name"], "arguments": text}


def _build_usage(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    if entry.get("usage") is None:
        return None
    usage = {"input_tokens": 0, "output_tokens": 0, **entry["usage"]}
    return {"total_tokens": usage["input_tokens"] + usage["output_tokens"], **usage}
