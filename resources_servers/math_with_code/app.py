# SPDX-License-Identifier: Apache-2.0
"""Calculations with a tool that runs Python: every rollout has an interpreter of its own, which keeps its variables.

Code runs in sandboxes of `nemo_gym.code_execution`. An interpreter ends when its rollout is scored, was not used for a
long while, or was idle for longest when another rollout needs one; scoring looks at the answer alone, so a response can
be scored again later.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field, PrivateAttr

from nemo_gym import grading
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.code_execution import CodePool, CodeResult, CodeSession, Limits, installed_packages
from nemo_gym.errors import RolloutFailure
from nemo_gym.server_utils import SESSION_ID_KEY, is_nemo_gym_fastapi_entrypoint
from nemo_gym.session_store import SessionStore
from resources_servers.math_with_code.answers import same_answer

LOG = logging.getLogger(__name__)
SHOWN_CHARS = 10_000


class MathWithCodeResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    max_execution_time: float = Field(10, gt=0)
    """Seconds that one call of the tool may take."""
    max_memory_mib: int = Field(1024, ge=64)
    """Memory that an interpreter may use."""
    max_sessions: int = Field(256, ge=1)
    """How many interpreters there are at most; further rollouts wait for one."""
    session_idle_secs: float = Field(900, gt=0)
    """After this long without a call, an interpreter ends."""
    evict_idle_secs: float = Field(60, gt=0)
    """After this long without a call, an interpreter ends if another rollout waits for one; the longest idle first."""


class MathWithCodeRunRequest(BaseRunRequest):
    """A task and its answer."""

    expected_result: str


class MathWithCodeVerifyRequest(MathWithCodeRunRequest, BaseVerifyRequest):
    """A task and the response to it."""


class MathWithCodeVerifyResponse(MathWithCodeVerifyRequest, BaseVerifyResponse):
    """The reward, and the answer it is for."""

    extracted_answer: str | None = None
    """What stands in the last box; None if there is none."""


class ExecutePythonRequest(BaseModel):
    """Arguments of `execute_python`."""

    code: str


class ExecutePythonResponse(BaseModel):
    """What the code did."""

    success: bool
    stdout: str
    stderr: str
    error_message: str | None = None
    result: str | None = None
    """The value of the last line, if that is an expression."""


@dataclass(eq=False)
class Interpreter:
    """The interpreter of a rollout, or the wait for one."""

    opening: "asyncio.Task[CodeSession]"
    calls: int = 0
    """How many are executed or wait at the moment."""
    used_at: float = field(default_factory=time.monotonic)
    """When the last call ended."""

    @property
    def is_open(self) -> bool:
        """Whether it takes one of the places that there are."""
        return self.opening.done() and not self.opening.cancelled() and self.opening.exception() is None


class MathWithCodeResourcesServer(SimpleResourcesServer):
    """One tool, and a verifier that compares the boxed answer."""

    config: MathWithCodeResourcesServerConfig
    _pool: CodePool = PrivateAttr()
    _sessions: SessionStore[Interpreter] = PrivateAttr()
    _evicted: SessionStore[str] = PrivateAttr()
    """Why the interpreter of a session ended, until its next call is told."""
    _closing: set["asyncio.Task[None]"] = PrivateAttr(default_factory=set)

    def model_post_init(self, context: Any) -> None:
        """Have sandboxes, of which none is started before there is something to run."""
        super().model_post_init(context)
        self._pool = CodePool(
            limits=Limits(memory_mib=self.config.max_memory_mib),
            timeout_s=self.config.max_execution_time,
            max_sessions=self.config.max_sessions,
            import_paths=installed_packages(),
        )
        self._sessions = SessionStore(ttl_s=self.config.session_idle_secs, on_drop=self._close_later)
        self._evicted = SessionStore()

    def setup_webserver(self) -> FastAPI:
        """The app with the tool, with which the sandboxes end."""
        app = super().setup_webserver()
        app.post("/execute_python")(self.execute_python)
        self._pool.close_with(app)
        return app

    async def execute_python(self, request: Request, body: ExecutePythonRequest) -> ExecutePythonResponse:
        """Run Python code; variables are kept for the next call."""
        session_id = request.session[SESSION_ID_KEY]
        if (cause := self._evicted.pop(session_id)) is not None:
            raise RolloutFailure("interpreter_evicted", cause, True)
        interpreter = self._sessions.get_or_create(
            session_id, lambda: Interpreter(asyncio.create_task(self._pool.open_session()))
        )
        interpreter.calls += 1
        try:
            session = await self._opened(session_id, interpreter)
            try:
                return _shown(await session.run(body.code))
            finally:
                if not session.is_usable:
                    self._forget(session_id, interpreter)
        finally:
            interpreter.calls -= 1
            interpreter.used_at = time.monotonic()

    async def verify(self, request: Request, body: MathWithCodeVerifyRequest) -> MathWithCodeVerifyResponse:
        """1 if the boxed answer is the expected one."""
        session_id = request.session[SESSION_ID_KEY]
        self._evicted.pop(session_id)
        interpreter = self._sessions.pop(session_id)
        if interpreter is not None:
            self._close_later("", interpreter)
        answer = grading.boxed(grading.strip_thinking(grading.assistant_text(body.response)))
        is_right = answer is not None and same_answer(answer, body.expected_result)
        return MathWithCodeVerifyResponse(**dict(body), extracted_answer=answer, reward=float(is_right))

    async def _opened(self, session_id: str, interpreter: Interpreter) -> CodeSession:
        """The interpreter of a session once there is one; other calls of the session may wait for it too."""
        opening = interpreter.opening
        pause_s = min(self.config.session_idle_secs, self.config.evict_idle_secs) / 4
        while not opening.done():
            await asyncio.wait([opening], timeout=pause_s)
            # Who waits is not idle. To look also ends the interpreters that are, which makes room.
            self._sessions.get(session_id)
            self._evict_longest_idle()
        try:
            return await opening
        except BaseException:
            self._forget(session_id, interpreter)
            raise

    def _evict_longest_idle(self) -> None:
        """End the interpreter that was idle longest, if all are taken and more rollouts wait than are about to end."""
        sessions = self._sessions.items()
        taken = sum(one.is_open for _, one in sessions) + len(self._closing)
        waiting = sum(not one.opening.done() for _, one in sessions)
        idle = [(one.used_at, session_id, one) for session_id, one in sessions if one.is_open and one.calls == 0]
        if taken < self.config.max_sessions or len(self._closing) >= waiting or not idle:
            return
        used_at, session_id, interpreter = min(idle, key=lambda entry: entry[0])
        idle_s = time.monotonic() - used_at
        if idle_s < self.config.evict_idle_secs:
            return
        self._evicted[session_id] = (
            f"the interpreter of this rollout was ended, with its variables: it had no call for {idle_s:.0f} s, all "
            f"{self.config.max_sessions} interpreters were taken, and another rollout waited for one.\n"
            "hint: raise `max_sessions` or `evict_idle_secs`, or play fewer rollouts at a time"
        )
        LOG.warning(
            "ended the interpreter of a rollout that had no call for %.0f s: all %d are taken and %d rollouts wait",
            *(idle_s, self.config.max_sessions, waiting),
        )
        self._forget(session_id, interpreter)

    def _forget(self, session_id: str, interpreter: Interpreter) -> None:
        if self._sessions.get(session_id) is interpreter:
            self._sessions.pop(session_id)
            self._close_later(session_id, interpreter)

    def _close_later(self, session_id: str, interpreter: Interpreter) -> None:
        closing = asyncio.ensure_future(_close(interpreter.opening))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def _close(opening: "asyncio.Task[CodeSession]") -> None:
    if not opening.done():
        opening.cancel()
    await asyncio.wait([opening])
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().aclose()


def _shown(result: CodeResult) -> ExecutePythonResponse:
    error = result.error
    if result.state_lost:
        error = f"{error}; all variables are gone"
    return ExecutePythonResponse(
        success=result.status == "ok",
        stdout=_cut(result.stdout),
        stderr=_cut(result.stderr),
        error_message=error or None,
        result=None if result.value is None else _cut(result.value),
    )


def _cut(text: str) -> str:
    if len(text) <= SHOWN_CHARS:
        return text
    return f"{text[: SHOWN_CHARS // 2]}\n…({len(text) - SHOWN_CHARS} characters)…\n{text[-SHOWN_CHARS // 2 :]}"


if __name__ == "__main__":
    MathWithCodeResourcesServer.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = MathWithCodeResourcesServer.run_webserver()
