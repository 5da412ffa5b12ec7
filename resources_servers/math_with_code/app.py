# SPDX-License-Identifier: Apache-2.0
"""Calculations with a tool that runs Python: every rollout has its own interpreter, which keeps its variables.

Code runs in sandboxes, and an interpreter ends when its rollout is scored. Scoring looks at the answer alone, so a
response can be scored again later.
"""

from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.code_execution import CodePool, CodeResult, Limits, installed_packages
from nemo_gym.code_interpreters import Interpreters
from nemo_gym.server_utils import SESSION_ID_KEY
from resources_servers.math_with_code.answers import find_answer, is_same_answer, is_same_value

SHOWN_CHARS = 10_000


class MathWithCodeResourcesServerConfig(BaseResourcesServerConfig):
    """Config of the environment."""

    max_execution_time: float = Field(10, gt=0)
    """Maximum seconds per tool call."""
    symbolic_comparison: bool = False
    """Also accept the same value in another form: `0.75` for `\\frac{3}{4}`, `1234` for `1,234`."""
    absolute_tolerance: bool = False
    """Let small numbers differ by a millionth, as NeMo Gym does: then `2e-30` is `1e-30`."""
    max_memory_mib: int = Field(1024, ge=64)
    """Memory limit of an interpreter."""
    max_sessions: int = Field(256, ge=1)
    """Maximum number of interpreters; further rollouts wait for one."""
    session_idle_secs: float = Field(900, gt=0)
    """An interpreter ends after this many seconds without a call."""
    evict_idle_secs: float = Field(60, gt=0)
    """An interpreter ends after this many idle seconds if another rollout waits for one; the longest idle first."""


class MathWithCodeRunRequest(BaseRunRequest):
    """A task and its answer."""

    expected_result: str


class MathWithCodeVerifyRequest(MathWithCodeRunRequest, BaseVerifyRequest):
    """A task and the response to it."""


class MathWithCodeVerifyResponse(MathWithCodeVerifyRequest, BaseVerifyResponse):
    """The reward, and the answer it is for."""

    extracted_answer: str | None = None
    """The content of the box that counts; None if there is none."""
    accuracy: bool = False
    """Whether it is the expected answer."""


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


class MathWithCodeResourcesServer(SimpleResourcesServer):
    """One tool, and a verifier that compares the boxed answer."""

    REVERIFY_MODE = ReverifyMode.STATELESS
    config: MathWithCodeResourcesServerConfig
    _pool: CodePool = PrivateAttr()
    _interpreters: Interpreters = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Create the sandboxes; none starts before there is something to run."""
        super().model_post_init(context)
        config = self.config
        self._pool = CodePool(
            limits=Limits(memory_mib=config.max_memory_mib),
            timeout_s=config.max_execution_time,
            max_sessions=config.max_sessions,
            import_paths=installed_packages(),
        )
        self._interpreters = Interpreters(
            self._pool,
            max_sessions=config.max_sessions,
            session_idle_secs=config.session_idle_secs,
            evict_idle_secs=config.evict_idle_secs,
        )

    def setup_webserver(self) -> FastAPI:
        """Return the app with the tool; the sandboxes end with it."""
        app = super().setup_webserver()
        app.post("/execute_python")(self.execute_python)
        self._pool.close_with(app)
        return app

    async def execute_python(self, request: Request, body: ExecutePythonRequest) -> ExecutePythonResponse:
        """Run Python code; variables are kept for the next call."""
        return _describe(await self._interpreters.run(request.session[SESSION_ID_KEY], body.code))

    async def verify(self, request: Request, body: MathWithCodeVerifyRequest) -> MathWithCodeVerifyResponse:
        """Give 1 if the boxed answer is the expected one."""
        self._interpreters.end(request.session[SESSION_ID_KEY])
        answer = find_answer(body.response)
        is_right = answer is not None and self._is_right(answer, body.expected_result)
        return MathWithCodeVerifyResponse(
            **dict(body), extracted_answer=answer, accuracy=is_right, reward=float(is_right)
        )

    def _is_right(self, answer: str, expected: str) -> bool:
        if is_same_answer(answer, expected, absolute_tolerance=self.config.absolute_tolerance):
            return True
        return self.config.symbolic_comparison and is_same_value(answer, expected)


def _describe(result: CodeResult) -> ExecutePythonResponse:
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
