# SPDX-License-Identifier: Apache-2.0
"""Resources servers that `gym env start` serves, and sessions with them over HTTP: reset, step, close."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from nemo_gym import PARENT_DIR
from nemo_gym.testing import asked, reply, tool_call
from tests.support.gym_process import gym_env_start

Turn = str | Sequence[tuple[str, Any]]
"""What a model says, or the calls that it makes: names and arguments, which may be text that is no JSON."""


@contextmanager
def served(name: str, head_port: int, *overrides: str) -> Iterator[str]:
    """Start the resources server `name`, in its own virtual environment if it needs one; yield its URL."""
    config = f"resources_servers/{name}/configs/resources_only.yaml"
    arguments = ["--config", config, f"++head_server.port={head_port}", *overrides]
    with gym_env_start(*arguments, cwd=Path(PARENT_DIR)) as gym:
        yield next(iter(re.findall(rf"\] {name} \(\S+\) (http\S+)", gym.output)))
        assert gym.stop() == 0


class StepSession:
    """One session, with the cookies that make it one."""

    def __init__(self, url: str, task: dict[str, Any]) -> None:
        self._url, self._task, self._calls = url, {"responses_create_params": asked("?").model_dump(), **task}, 0
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def __aenter__(self) -> "StepSession":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def post(self, path: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        """Return the status and the body; of a failure, what its header says."""
        async with self._session.post(f"{self._url}{path}", json={**self._task, **fields}) as answer:
            if failure := answer.headers.get("x-nemo-gym-failure"):
                return answer.status, json.loads(failure)
            return answer.status, await answer.json()

    async def reset(self) -> dict[str, Any]:
        status, begun = await self.post("/reset")
        assert status == 200, begun
        return begun

    async def step(self, turn: Turn) -> dict[str, Any]:
        status, step = await self.try_step(turn)
        assert status == 200, step
        return step

    async def try_step(self, turn: Turn) -> tuple[int, dict[str, Any]]:
        """Act, and return the status too; the calls of an episode are numbered from 0."""
        said = [turn] if isinstance(turn, str) else [self._number(*call) for call in turn]
        return await self.post("/step", response=reply(*said).model_dump())

    def _number(self, name: str, arguments: Any) -> Any:
        self._calls += 1
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return tool_call(name, text, call_id=f"call_{self._calls - 1}")
