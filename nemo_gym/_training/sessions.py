# SPDX-License-Identifier: Apache-2.0
"""The sessions of a gateway: each holds the model calls of one rollout that another program runs, and its reward.

A session is open until it has a final reward or a failure. One whose agent is gone ends at a deadline, as failed: it
never gets a reward of zero. An ended session stays until it is deleted or expires, and its id is not reused. Nothing is
dropped to make room: when the book is full, new sessions are refused. All of it is in the memory of one process.
"""

import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import uuid4

from nemo_gym._training.capture.call_records import Dialect
from nemo_gym._training.session_record import GatewaySession, SessionCall, SessionLabels
from nemo_gym.errors import GymError

LOG = logging.getLogger(__name__)
KEY_PREFIX = "ng-session-"
_SWEEP_EVERY_S = 1.0
_MOST_REMEMBERED = 100_000
"""Ids of deleted sessions, which are refused while they are remembered."""


class SessionRefused(GymError):
    """A session request cannot be granted; `status` is the HTTP status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class SessionLimits:
    """How many sessions there may be, and how long they last."""

    max_sessions: int
    max_memory_bytes: int
    idle_timeout_s: float
    max_duration_s: float
    keep_ended_s: float
    open_on_first_call: bool = False


class SessionBook:
    """All sessions of one model server."""

    def __init__(self, limits: SessionLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._sessions: dict[str, GatewaySession] = {}
        self._by_key: dict[str, GatewaySession] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self._size_bytes = 0
        self._made = 0
        self._ended = 0
        self._swept_s = clock()

    # --- for trainers -------------------------------------------------------------------------------------------------

    def create(self, session_id: str | None = None, labels: SessionLabels | None = None) -> GatewaySession:
        """Open a session, even if calls would be refused for lack of room; raise SessionRefused if the id was used."""
        session = self._open(session_id, labels, KEY_PREFIX + secrets.token_urlsafe(24))
        self._by_key[session.key] = session
        return session

    def _open(self, session_id: str | None, labels: SessionLabels | None, key: str) -> GatewaySession:
        self._sweep()
        session_id = session_id or uuid4().hex
        if session_id in self._sessions:
            raise SessionRefused(409, f"session {session_id!r} already exists.\nhint: give every rollout its own id")
        self._refuse_deleted(session_id, 409)
        self._made += 1
        now = self._clock()
        session = GatewaySession(session_id, key, labels or SessionLabels(), self._made, time.time(), now, now)
        self._sessions[session_id] = session
        return session

    def find(self, session_id: str) -> GatewaySession:
        """Return a session; raise SessionRefused if it was deleted or never existed."""
        self._sweep(session_id)
        session = self._sessions.get(session_id)
        if session is None:
            self._refuse_deleted(session_id, 404)
            raise SessionRefused(
                404,
                f"there is no session {session_id!r}.\nhint: `POST /sessions` opens one, and issues its key",
            )
        return session

    def list_sessions(self, *, done: bool | None, after: int, limit: int) -> list[GatewaySession]:
        """Return sessions after the cursor `after`: ended ones in the order they ended, others by creation."""
        self._sweep(at_once=True)
        if done:
            chosen = [one for one in self._sessions.values() if one.end_number is not None and one.end_number > after]
            return sorted(chosen, key=lambda one: one.end_number or 0)[:limit]
        others = [one for one in self._sessions.values() if one.number > after]
        if done is False:
            others = [one for one in others if one.status == "open"]
        return others[:limit]

    def set_reward(
        self, session_id: str, reward: float, components: Mapping[str, float], *, final: bool
    ) -> GatewaySession:
        """Set the reward of a session, and end it if the reward is `final`. The same final reward may be set again."""
        session = self.find(session_id)
        if session.status == "done" and final and (session.reward, session.components) == (reward, dict(components)):
            return session
        self._require_open(session, "its reward cannot be set any more")
        session.reward = reward
        session.components = dict(components)
        session.used_s = self._clock()
        if final:
            self._end(session)
        return session

    def fail(self, session_id: str, kind: str, message: str) -> GatewaySession:
        """End a session without a reward."""
        session = self.find(session_id)
        if session.status != "failed":
            self._require_open(session, "it cannot fail any more")
            self._end(session, (kind, message))
        return session

    def delete(self, session_id: str) -> None:
        """Forget a session, even an open one; its id is not reused."""
        self._drop(self.find(session_id))

    # --- for agents ---------------------------------------------------------------------------------------------------

    def begin_call(self, session_id: str, dialect: Dialect, key: str) -> tuple[GatewaySession, SessionCall]:
        """Note that a call begins; raise SessionRefused if `key` is not that of the session, or it has ended.

        If sessions may be opened by calls, the key of the first call becomes the session's.
        """
        self._sweep(session_id)
        session = self._sessions.get(session_id)
        if session is None and self._limits.open_on_first_call:
            self._require_room()
            session = self._open(session_id, None, key)
        if session is None:
            self._refuse_deleted(session_id, 409)
            session = self.find(session_id)
        if not secrets.compare_digest(session.key.encode(), key.encode(errors="replace")):
            raise SessionRefused(
                401,
                f"this call does not have the key of session {session_id!r}, so the model was not asked.\n"
                "hint: send the `api_key` that `POST /sessions` returned, as bearer token or as `x-api-key`",
            )
        self._require_open(session, "the model was not asked")
        self._require_memory()
        call = SessionCall(dialect, time.time())
        session.calls.append(call)
        session.under_way += 1
        session.used_s = self._clock()
        return session, call

    def find_by_key(self, key: str) -> GatewaySession:
        """Return the session that an API key stands for."""
        session = self._by_key.get(key)
        if session is None:
            raise SessionRefused(
                401,
                "this is not the key of a session, or the session was deleted.\nhint: `POST /sessions` issues one",
            )
        return session

    def end_call(self, session: GatewaySession, call: SessionCall) -> None:
        """Note that a call has ended; `call` says how."""
        call.completed_at = time.time()
        if session.ended_at is not None or session.id not in self._sessions:
            return  # it was excluded when the session ended
        session.under_way -= 1
        session.used_s = self._clock()
        self._size_bytes += call.size_bytes

    # --- ending -------------------------------------------------------------------------------------------------------

    def _end(self, session: GatewaySession, failure: tuple[str, str] | None = None) -> None:
        self._ended += 1
        session.ended_at = time.time()
        session.ended_s = self._clock()
        session.end_number = self._ended
        session.failure = failure
        session.lost_calls = session.under_way
        session.under_way = 0
        session.calls = [call for call in session.calls if call.completed_at is not None]

    def _drop(self, session: GatewaySession) -> None:
        del self._sessions[session.id]
        if self._by_key.get(session.key) is session:  # one that a call opened may have the key of another
            del self._by_key[session.key]
        self._size_bytes -= sum(call.size_bytes for call in session.calls if call.completed_at is not None)
        self._deleted[session.id] = None
        while len(self._deleted) > _MOST_REMEMBERED:
            self._deleted.popitem(last=False)

    def _sweep(self, session_id: str | None = None, *, at_once: bool = False) -> None:
        """End and drop what is due: the given session, and periodically all others."""
        now = self._clock()
        due = []
        if at_once or now - self._swept_s >= _SWEEP_EVERY_S:
            self._swept_s = now
            due = [*self._sessions.values()]
        elif session_id in self._sessions:
            due = [self._sessions[session_id]]
        limits = self._limits
        for session in due:
            if session.ended_at is None:
                if now - session.began_s >= limits.max_duration_s:
                    self._end(session, ("timeout", f"it had no final reward after {limits.max_duration_s:g} s"))
                elif not session.under_way and now - session.used_s >= limits.idle_timeout_s:
                    what = f"no call and no final reward came for {limits.idle_timeout_s:g} s"
                    self._end(session, ("timeout", what))
            elif now - session.ended_s >= limits.keep_ended_s:
                if not session.was_fetched:
                    LOG.warning("session %r was never fetched, and is now deleted", session.id)
                self._drop(session)

    # --- refusals -----------------------------------------------------------------------------------------------------

    def _refuse_deleted(self, session_id: str, status: int) -> None:
        if session_id in self._deleted:
            raise SessionRefused(
                status, f"session {session_id!r} was deleted, and its id cannot be reused.\nhint: use a new id"
            )

    def _require_open(self, session: GatewaySession, consequence: str) -> None:
        if session.status == "open":
            return
        how = f"ended with the reward {session.reward}"
        if session.failure:
            how = f"failed: {session.failure[1]}"
        raise SessionRefused(
            409, f"session {session.id!r} has {how}; {consequence}.\nhint: use a new id for another rollout"
        )

    def _require_room(self) -> None:
        if len(self._sessions) >= self._limits.max_sessions:
            raise SessionRefused(
                429,
                f"there are {len(self._sessions)} sessions already, and no more may be kept (max_sessions).\n"
                "hint: delete those that were fetched (`DELETE /sessions/ID`), or raise `session_gateway.max_sessions`",
            )
        self._require_memory()

    def _require_memory(self) -> None:
        if self._size_bytes >= self._limits.max_memory_bytes:
            raise SessionRefused(
                429,
                f"sessions hold {self._size_bytes} bytes, and no more may be kept (max_memory_bytes).\n"
                "hint: delete those that were fetched (`DELETE /sessions/ID`), or raise "
                "`session_gateway.max_memory_bytes`",
            )
