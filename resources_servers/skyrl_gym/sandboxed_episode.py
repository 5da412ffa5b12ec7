# SPDX-License-Identifier: Apache-2.0
"""Episodes whose steps run what the model wrote: each step is a call in a sandbox, and the state is kept here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nemo_gym.code_execution import COMMON_MODULES, CodePool, CodeResult, Limits, installed_packages
from nemo_gym.errors import RolloutFailure

INSIDE = Path(__file__).parent / "inside"
MODULE = "skyrl_environment"


def make_pool(workers: int, memory_mib: int, visible: Sequence[str]) -> CodePool:
    """Return sandboxes that have loaded the library, and can read what is in the folders `visible`."""
    return CodePool(
        workers,
        Limits(memory_mib=memory_mib),
        preload=(*COMMON_MODULES, MODULE),
        import_paths=[*installed_packages(), str(INSIDE), *visible],
    )


class SandboxedEpisode:
    """What `nemo_gym.adapters` asks of the place where an episode is played."""

    def __init__(self, pool: CodePool) -> None:
        self._pool = pool
        self._task: dict[str, Any] = {}
        self._state: dict[str, Any] = {}
        self.steps = 0
        self.tools: list[dict[str, Any]] = []

    async def reset(self, task: dict[str, Any], seed: int, timeout_s: float) -> dict[str, Any]:
        """Begin. Nothing of the model's runs here, so whatever goes wrong is a failure."""
        self._task = task
        ran = await self._call("begin", [task], timeout_s)
        if ran.status != "ok":
            raise _fail("reset", ran.error)
        return self._take_over("reset", ran.value)

    async def step(self, action: Sequence[Any], timeout_s: float) -> dict[str, Any]:
        """Act. A reply whose code or SQL is more than a sandbox allows ends the episode with nothing."""
        self.steps += 1
        ran = await self._call("play_step", [self._task, self._state, *action], timeout_s)
        if ran.status == "error":
            raise _fail("step", ran.error)
        if ran.status != "ok":
            info = {"stopped": ran.error}
            return {"observation": None, "reward": 0.0, "terminated": True, "truncated": False, "info": info}
        return self._take_over("step", ran.value)

    async def end(self) -> None:
        """There is nothing to end: no process is the episode's own."""

    async def _call(self, function: str, arguments: list[Any], timeout_s: float) -> CodeResult:
        return await self._pool.call(f"from {MODULE} import {function}", function, arguments, timeout_s=timeout_s)

    def _take_over(self, what: str, answer: dict[str, Any]) -> dict[str, Any]:
        if "raised" in answer:
            raise _fail(what, answer["raised"])
        self._state = answer.pop("state")
        return answer


def _fail(what: str, why: str) -> RolloutFailure:
    return RolloutFailure(
        "tool_server",
        f"the environment could not do `{what}`: {why}\nhint: this is an error of the environment or of its task",
    )
