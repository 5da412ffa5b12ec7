# SPDX-License-Identifier: Apache-2.0
"""Responses that clients can fetch by id or continue (`previous_response_id`), for models behind a chat endpoint.

The oldest are dropped beyond a bound. Each response is kept with its own input only; a conversation is put together
from the chain of its responses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

MAX_RESPONSES = 1000
MAX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class _Kept:
    previous_id: str | None
    input: bytes
    response: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.input) + len(self.response)


class KeptResponses:
    """The latest responses of one server, by id. An id cannot be guessed, so whoever knows it may read them."""

    def __init__(self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._by_id: dict[str, _Kept] = {}
        self._size_bytes = 0

    def keep(self, response_id: str, response: bytes, request: Mapping[str, Any]) -> None:
        """Keep the JSON of a response, and what of its request a next turn needs."""
        self.delete(response_id)
        kept = _Kept(request.get("previous_response_id"), orjson.dumps(request.get("input")), response)
        self._by_id[response_id] = kept
        self._size_bytes += kept.size_bytes
        while len(self._by_id) > self._max_responses or self._size_bytes > self._max_bytes:
            self.delete(next(iter(self._by_id)))

    def find(self, response_id: str) -> bytes | None:
        """Return the JSON of a response; None if it is not kept."""
        kept = self._by_id.get(response_id)
        return kept.response if kept is not None else None

    def delete(self, response_id: str) -> bool:
        """Drop a response; return whether it was there."""
        kept = self._by_id.pop(response_id, None)
        if kept is None:
            return False
        self._size_bytes -= kept.size_bytes
        return True

    def read_history(self, response_id: str) -> list[Any] | None:
        """Return all items up to the end of a response; None if one of its conversation is no longer kept."""
        turns: list[_Kept] = []
        at: str | None = response_id
        while at is not None:
            kept = self._by_id.pop(at, None)
            if kept is None:
                return None
            self._by_id[at] = kept  # again the latest: a conversation that goes on is not dropped
            turns.append(kept)
            at = kept.previous_id
        items: list[Any] = []
        for turn in reversed(turns):
            items += list_input_items(orjson.loads(turn.input))
            items += orjson.loads(turn.response)["output"]
        return items


def list_input_items(given: Any) -> list[Any]:
    """Return the `input` of a request as items."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return list(given or [])
