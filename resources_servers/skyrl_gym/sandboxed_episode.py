# SPDX-License-Identifier: Apache-2.0
"""Episodes that run the model's code: each step is a call in a sandbox, and the state is kept here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nemo_gym.code_execution import COMMON_MODULES, CodePool, CodeResult, Limits, installed_packages
from nemo_gym.errors import RolloutFailure

INSIDE = Path(__file__).parent / "inside"
MODULE = "skyrl_environment"


def make_pool(workers: int, memory_mib: int, visible: Sequence[str]) -> CodePool:
    """Return sandboxes with the library loaded and read access to the folders in `visible`."""
    return CodePool(
        workers,
        Limits(memory_mib=memory_mib),
        preload=(*COMMON_MODULES, MODULE),
        import_paths=[*installed_packages(), str(INSIDE), *visible],
    )


class SandboxedEpisode:
    """An episode with the interface that `nemo_gym.adapters` expects."""

    def __init__(self, pool: CodePool) -> None:
        self._pool = pool
        self._task: dict[str, Any] = {}
        self._state: dict[str, Any] = {}
        self.steps = 0
        self.tools: list[dict[str, Any]] = []

    async def reset(self, task: dict[str, Any], seed: int, timeout_s: float) -> dict[str, Any]:
        """Start the episode. None of the model's code runs here, so any error is a failure."""
        self._task = task
        result = await self._call("begin", [task], timeout_s)
        if result.status != "ok":
            raise _make_failure("reset", result.error)
        return self._read_answer("reset", result.value)

    async def step(self, action: Sequence[Any], timeout_s: float) -> dict[str, Any]:
        """Take a step. A reply whose code or SQL exceeds the sandbox's limits ends the episode with reward 0."""
        self.steps += 1
        result = await self._call("play_step", [self._task, self._state, *action], timeout_s)
        if result.status == "error":
            raise _make_failure("step", result.error)
        if result.status != "ok":
            info = {"stopped": result.error}
            return {"observation": None, "reward": 0.0, "terminated": True, "truncated": False, "info": info}
        return self._read_answer("step", result.value)

    async def end(self) -> None:
        """Do nothing: the episode has no process of its own."""

    async def _call(self, function: str, arguments: list[Any], timeout_s: float) -> CodeResult:
        return await self._pool.call(f"from {MODULE} import {function}", function, arguments, timeout_s=timeout_s)

    def _read_answer(self, what: str, answer: dict[str, Any]) -> dict[str, Any]:
        if "raised" in answer:
            raise _make_failure(what, answer["raised"])
        self._state = answer.pop("state")
        return answer


def _make_failure(what: str, why: str) -> RolloutFailure:
    return RolloutFailure(
        "tool_server",
        f"the environment failed in `{what}`: {why}\nhint: the fault is in the environment or its task",
    )
