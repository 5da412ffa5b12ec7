# SPDX-License-Identifier: Apache-2.0
"""When two items of a conversation are the same: their forms, without what changes on the way back to the model.

Ids, statuses, token ids, null fields, the difference between a text and a list of one text part, and that between
system and developer do not count. Neither does reasoning, which many agents leave out of the history.

How far a conversation has come along a list of replies is seen from the replies it already holds. That needs no session
and no memory, so it is the same in every worker and for a request that is sent twice.
"""

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any

import orjson
from pydantic import BaseModel

from nemo_gym.errors import GymError

Form = tuple[Any, ...]
Key = bytes
_IGNORED = frozenset({"id", "status", "annotations", "logprobs", "detail"})
_NEW_RUN = b"|"


class ReplayMiss(GymError):
    """A request that nothing recorded or scripted answers."""


def get_field(value: Any, name: str) -> Any:
    """Return one field of an object or a dict; None where it has none."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def is_from_model(item: Any) -> bool:
    """Return whether the model wrote `item`."""
    kind = get_field(item, "type") or "message"
    if kind == "message":
        return (get_field(item, "role") or "assistant") == "assistant"
    return not kind.endswith("_output") and kind != "mcp_approval_response"


def make_form(item: Any) -> Form:
    """Return what makes `item` the item it is."""
    match get_field(item, "type") or "message":
        case "message":
            role = get_field(item, "role") or "assistant"
            return (
                "message",
                "system" if role == "developer" else role,
                _normalize_content(get_field(item, "content")),
            )
        case "function_call":
            return ("function_call", get_field(item, "call_id"), get_field(item, "name"), get_field(item, "arguments"))
        case "function_call_output":
            return ("function_call_output", get_field(item, "call_id"), _normalize_content(get_field(item, "output")))
        case "reasoning":
            thoughts = get_field(item, "summary") or get_field(item, "content") or []
            return ("reasoning", "".join(get_field(thought, "text") or "" for thought in thoughts))
        case kind:
            return (kind, _normalize_part(item))


def is_silent(shape: Form) -> bool:
    """Return whether an item of this form may be missing from a history without changing what was said."""
    return shape[0] == "reasoning" or shape == ("message", "assistant", "")


def describe_form(shape: Form) -> str:
    """Return an item of this form as a line for people."""
    return " ".join(part if isinstance(part, str) else orjson.dumps(part).decode() for part in shape[1:] if part)


def _normalize_content(content: Any) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    texts = [get_field(part, "text") for part in content]
    if all(isinstance(text, str) for text in texts):
        return "".join(texts)
    return [_normalize_part(part) for part in content]


def _normalize_part(value: Any) -> Any:
    fields = value.model_dump() if isinstance(value, BaseModel) else value
    kept = {name: held for name, held in fields.items() if held is not None and name not in _IGNORED}
    return dict(sorted(kept.items()))


def list_items(items: Any, instructions: str | None) -> list[Any]:
    """Return the items of a request. Instructions are a first system message; a text is one user message."""
    listed = [{"role": "user", "content": items}] if isinstance(items, str) else list(items)
    return [{"role": "system", "content": instructions}, *listed] if instructions else listed


def hash_beginnings(forms: Iterable[Form]) -> dict[Key, int]:
    """Return the key of every beginning of a conversation, and how many items it has."""
    state, keys = blake2b(digest_size=16), {}
    keys[state.digest()] = 0
    for count, shape in enumerate(forms, 1):
        if not is_silent(shape):
            state.update(orjson.dumps(shape))
        # Of two beginnings with one key, the shorter: what follows then still holds the silent items.
        keys.setdefault(state.digest(), count)
    return keys


def hash_prompt(forms: Iterable[Form]) -> Key:
    """Return the key of a whole prompt."""
    return list(hash_beginnings(forms))[-1]


def hash_said(runs: Iterable[Iterable[Form]]) -> Key:
    """Return the key of what the model has said, turn by turn. What it heard in between does not count."""
    state = blake2b(digest_size=16)
    for run in runs:
        state.update(_NEW_RUN)
        for shape in run:
            if not is_silent(shape):
                state.update(orjson.dumps(shape))
    return state.digest()


def split_turns(items: Iterable[Any]) -> list[list[Any]]:
    """Return the model's turns in `items`: what it wrote between two items that others wrote."""
    found: list[list[Any]] = []
    is_open = False
    for item in items:
        if not is_from_model(item):
            is_open = False
            continue
        if not is_open:
            found.append([])
            is_open = True
        found[-1].append(item)
    return found


def list_spoken_forms(items: Iterable[Any]) -> list[Form]:
    """Return the forms by which a reply is recognised in a history: without its reasoning, if it has more than that."""
    forms = [make_form(item) for item in items]
    return [shape for shape in forms if not is_silent(shape)] or forms


def count_replies(reply: Callable[[int], list[Form]], items: Iterable[Any]) -> int:
    """Count the replies that the history `items` holds, in order; `reply(n)` is the n-th. Other items are skipped."""
    position, matched = 0, 0
    expected = reply(position)
    for item in items:
        if not is_from_model(item) or make_form(item) != expected[matched]:
            continue
        matched += 1
        if matched == len(expected):
            position, matched = position + 1, 0
            expected = reply(position)
    return position
