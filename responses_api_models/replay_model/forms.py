# SPDX-License-Identifier: Apache-2.0
"""How far a conversation has come along a list of replies, seen from the replies it already holds.

That needs no session and no memory, so it is the same in every worker and for a request that is sent twice. When two
items are the same is said in `nemo_gym.item_forms`.
"""

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

import orjson

from nemo_gym.errors import GymError
from nemo_gym.item_forms import Form, is_from_model, is_silent, make_form

Key = bytes
_NEW_RUN = b"|"


class ReplayMiss(GymError):
    """A request that nothing recorded or scripted answers."""


def list_items(items: Any, instructions: str | None) -> list[Any]:
    """Return the items of a request. Instructions are a first system message; a text is one user message."""
    listed = [{"role": "user", "content": items}] if isinstance(items, str) else list(items)
    return [{"role": "system", "content": instructions}, *listed] if instructions else listed


def hash_beginnings(forms: Iterable[Form]) -> dict[Key, int]:
    """Return the key of every beginning of a conversation, and how many items it has."""
    state = blake2b(digest_size=16)
    keys = {}
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
    position = 0
    matched = 0
    expected = reply(position)
    for item in items:
        if not is_from_model(item) or make_form(item) != expected[matched]:
            continue
        matched += 1
        if matched == len(expected):
            position = position + 1
            matched = 0
            expected = reply(position)
    return position
