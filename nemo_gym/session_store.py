# SPDX-License-Identifier: Apache-2.0
"""Per-session state that cannot leak: unused entries expire, and their number is bounded.

It is for servers that keep something between the calls of one rollout, keyed by `request.session[SESSION_ID_KEY]`. The
state lives in the process: workers do not share it, and it does not survive a restart.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from fastapi import HTTPException, Request

from nemo_gym._util.row_keys import SESSION_ID_KEY
from nemo_gym.errors import GymError

T = TypeVar("T")


class UnknownSession(GymError, KeyError):
    """Nothing is stored for this session: it was never seeded, has expired, or was evicted by newer ones."""

    def __init__(self, session_id: str, ttl_s: float, max_sessions: int) -> None:
        super().__init__(session_id, ttl_s, max_sessions)
        self.session_id = session_id
        self.ttl_s = ttl_s
        self.max_sessions = max_sessions

    def __str__(self) -> str:
        return (
            f"no state for session {self.session_id!r}: it was never seeded, was idle for over {self.ttl_s:g} s, or "
            f"over {self.max_sessions} newer sessions came after it.\n"
            "hint: call /seed_session first and send back the cookie of its reply"
        )


class SessionStore(Generic[T]):
    """A mapping from session id to state, with an expiry and a bound.

    Reading an entry keeps it alive. When the store is full, the least recently used entry goes first. `on_drop` is
    called for every entry that expires or is evicted.
    """

    def __init__(
        self,
        *,
        ttl_s: float = 3600.0,
        max_sessions: int = 100_000,
        on_drop: Callable[[str, T], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if ttl_s <= 0 or max_sessions <= 0:
            raise ValueError(f"ttl_s and max_sessions must be positive, not {ttl_s!r} and {max_sessions!r}")
        self._ttl_s = ttl_s
        self._max = max_sessions
        self._on_drop = on_drop
        self._clock = clock
        self._entries: OrderedDict[str, tuple[float, T]] = OrderedDict()  # oldest use first

    def __setitem__(self, session_id: str, state: T) -> None:
        self._entries[session_id] = (self._clock(), state)
        self._entries.move_to_end(session_id)
        self._drop_stale()

    def __getitem__(self, session_id: str) -> T:
        self._drop_stale()
        try:
            _, state = self._entries[session_id]
        except KeyError:
            raise UnknownSession(session_id, self._ttl_s, self._max) from None
        self._entries[session_id] = (self._clock(), state)
        self._entries.move_to_end(session_id)
        return state

    def get(self, session_id: str, default: T | None = None) -> T | None:
        """Return the state of a session, or `default`."""
        try:
            return self[session_id]
        except UnknownSession:
            return default

    def of_request(self, request: Request) -> T:
        """Return the state of the session of `request`; raise HTTPException 400 if there is none."""
        try:
            return self[request.session[SESSION_ID_KEY]]
        except UnknownSession as error:
            raise HTTPException(400, str(error)) from error

    def get_or_create(self, session_id: str, factory: Callable[[], T]) -> T:
        """Return the state of a session; create it with `factory` if there is none."""
        if session_id not in self:
            self[session_id] = factory()
        return self[session_id]

    def pop(self, session_id: str, default: T | None = None) -> T | None:
        """Remove and return the state of a session."""
        entry = self._entries.pop(session_id, None)
        return default if entry is None else entry[1]

    def __delitem__(self, session_id: str) -> None:
        if self._entries.pop(session_id, None) is None:
            raise UnknownSession(session_id, self._ttl_s, self._max)

    def __contains__(self, session_id: object) -> bool:
        self._drop_stale()
        return session_id in self._entries

    def __iter__(self) -> Iterator[str]:
        self._drop_stale()
        return iter(list(self._entries))

    def items(self) -> list[tuple[str, T]]:
        """Return all sessions with their state, least recently used first; this does not count as use."""
        self._drop_stale()
        return [(session_id, state) for session_id, (_, state) in self._entries.items()]

    def __len__(self) -> int:
        self._drop_stale()
        return len(self._entries)

    def _drop_stale(self) -> None:
        horizon = self._clock() - self._ttl_s
        while self._entries:
            session_id, (used, state) = next(iter(self._entries.items()))
            if used > horizon and len(self._entries) <= self._max:
                return
            del self._entries[session_id]
            if self._on_drop is not None:
                self._on_drop(session_id, state)
