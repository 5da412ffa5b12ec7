# SPDX-License-Identifier: Apache-2.0
"""How far a conversation has come along a list of replies, by the replies it already holds.

The count needs no session and no memory, so it is the same in every worker and for a request that is sent twice.
"""

from collections.abc import Callable, Iterable
from typing import Any

from nemo_gym.errors import GymError
from responses_api_models.replay_model.forms import Form, form, is_models, is_silent


class ReplayMiss(GymError):
    """A request that nothing recorded or scripted answers."""


def spoken(items: Iterable[Any]) -> list[Form]:
    """The forms by which a reply is recognised in a history: without its reasoning, if it has more than that."""
    forms = [form(item) for item in items]
    return [shape for shape in forms if not is_silent(shape)] or forms


def position_in(reply: Callable[[int], list[Form]], items: Iterable[Any]) -> int:
    """How many replies the history `items` holds, in order; `reply(n)` is the n-th. Other items are passed over."""
    position, matched = 0, 0
    expected = reply(position)
    for item in items:
        if not is_models(item) or form(item) != expected[matched]:
            continue
        matched += 1
        if matched == len(expected):
            position, matched = position + 1, 0
            expected = reply(position)
    return position
