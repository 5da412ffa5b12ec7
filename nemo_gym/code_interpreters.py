# SPDX-License-Identifier: Apache-2.0
"""One interpreter per rollout that keeps its variables, for servers with a tool that runs code.

An interpreter ends with its rollout, after a long idle time, or when it has been idle the longest and another rollout
needs one.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, field

from nemo_gym.code_execution import CodePool, CodeResult, CodeSession
from nemo_gym.errors import RolloutFailure
from nemo_gym.session_store import SessionStore

LOG = logging.getLogger(__name__)


@dataclass(eq=False)
class _Interpreter:
    """The interpreter of a rollout, or a pending one."""

    opening: "asyncio.Task[CodeSession]"
    calls: int = 0
    """How many calls are running or waiting."""
    used_at: float = field(default_factory=time.monotonic)
    """When the last call ended."""

    @property
    def is_open(self) -> bool:
        """Whether it counts toward `max_sessions`."""
        return self.opening.done() and not self.opening.cancelled() and self.opening.exception() is None


class Interpreters:
    """`await interpreters.run(session_id, source)` runs code in a session's interpreter, opening it if needed.

    Call `end(session_id)` when the rollout is over.
    """

    def __init__(self, pool: CodePool, *, max_sessions: int, session_idle_secs: float, evict_idle_secs: float) -> None:
        """Use up to `max_sessions` interpreters of `pool`. Each ends after `session_idle_secs` without a call, or after
        `evict_idle_secs` if another session is waiting; the longest idle goes first."""
        self._pool = pool
        self._max_sessions = max_sessions
        self._evict_idle_s = evict_idle_secs
        self._look_interval_s = min(session_idle_secs, evict_idle_secs) / 4
        self._sessions = SessionStore[_Interpreter](
            ttl_s=session_idle_secs, on_drop=lambda _, interpreter: self._close_later(interpreter)
        )
        self._evicted = SessionStore[str]()
        """Why a session's interpreter was ended; its next call reports it."""
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self, session_id: str, source: str) -> CodeResult:
        """Run code in a session's interpreter; raise RolloutFailure if it was evicted for another session."""
        if (cause := self._evicted.pop(session_id)) is not None:
            raise RolloutFailure("interpreter_evicted", cause, True)
        interpreter = self._sessions.get_or_create(
            session_id, lambda: _Interpreter(asyncio.create_task(self._pool.open_session()))
        )
        interpreter.calls += 1
        try:
            session = await self._wait_until_open(session_id, interpreter)
            try:
                return await session.run(source)
            finally:
                if not session.is_usable:
                    self._forget(session_id, interpreter)
        finally:
            interpreter.calls -= 1
            interpreter.used_at = time.monotonic()

    def end(self, session_id: str) -> None:
        """End a session's interpreter, if it has one."""
        self._evicted.pop(session_id)
        interpreter = self._sessions.pop(session_id)
        if interpreter is not None:
            self._close_later(interpreter)

    async def _wait_until_open(self, session_id: str, interpreter: _Interpreter) -> CodeSession:
        """Return a session's interpreter once it is open; several calls of the session may wait for it."""
        opening = interpreter.opening
        while not opening.done():
            await asyncio.wait([opening], timeout=self._look_interval_s)
            # Waiting is not idling. The lookup also ends expired interpreters, which makes room.
            self._sessions.get(session_id)
            self._evict_longest_idle()
        try:
            return await opening
        except BaseException:
            self._forget(session_id, interpreter)
            raise

    def _evict_longest_idle(self) -> None:
        """End the longest-idle interpreter if all are taken and more sessions are waiting than are about to end."""
        sessions = self._sessions.items()
        taken = sum(one.is_open for _, one in sessions) + len(self._closing)
        waiting = sum(not one.opening.done() for _, one in sessions)
        idle = [(one.used_at, session_id, one) for session_id, one in sessions if one.is_open and one.calls == 0]
        if taken < self._max_sessions or len(self._closing) >= waiting or not idle:
            return
        used_at, session_id, interpreter = min(idle, key=lambda entry: entry[0])
        idle_s = time.monotonic() - used_at
        if idle_s < self._evict_idle_s:
            return
        self._evicted[session_id] = (
            f"the interpreter of this rollout was ended, with its variables: it had no call for {idle_s:.0f} s, all "
            f"{self._max_sessions} interpreters were taken, and another rollout waited for one.\n"
            "hint: raise `max_sessions` or `evict_idle_secs`, or run fewer rollouts at a time"
        )
        LOG.warning(
            "ended the interpreter of a rollout that had no call for %.0f s: all %d are taken, %d rollouts are waiting",
            *(idle_s, self._max_sessions, waiting),
        )
        self._forget(session_id, interpreter)

    def _forget(self, session_id: str, interpreter: _Interpreter) -> None:
        if self._sessions.get(session_id) is interpreter:
            self._sessions.pop(session_id)
            self._close_later(interpreter)

    def _close_later(self, interpreter: _Interpreter) -> None:
        closing = asyncio.ensure_future(_close(interpreter.opening))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def _close(opening: "asyncio.Task[CodeSession]") -> None:
    if not opening.done():
        opening.cancel()
    await asyncio.wait([opening])
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().aclose()
