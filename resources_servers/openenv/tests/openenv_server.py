# SPDX-License-Identifier: Apache-2.0
"""A real OpenEnv server with three environments, for tests: guessing, counting, and MCP tools.

It is run by an interpreter that has `openenv-core`, with a port, and prints a line when it listens.
"""

import contextlib
import random
import sys
import time

import uvicorn
from fastapi import FastAPI
from fastmcp import FastMCP
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation

PLACES = 4


class Guess(Action):
    """Say a number, in words or digits."""

    message: str


class Hint(Observation):
    text: str


class Guessing(Environment):
    """Find a number of a seed; the closer, the more."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, highest=20, **kwargs):
        self._draw = random.Random(seed)
        self._secret, self._highest, self._state = self._draw.randint(1, highest), highest, State(episode_id=episode_id)
        return Hint(text=f"Guess from 1 to {highest}.")

    def step(self, action, timeout_s=None, **kwargs):
        self._state.step_count += 1
        match action.message:
            case "raise":
                raise RuntimeError("the dice are gone")
            case "hang":
                time.sleep(20)
        if not action.message.isdigit():
            return Hint(text="That is no number.", reward=-0.1 * self._draw.random())
        off = abs(int(action.message) - self._secret)
        done = off == 0 or self._state.step_count >= 8
        reward = None if off > self._highest else 1 / (1 + off) - self._draw.random() / 7
        return Hint(text="Right." if off == 0 else f"Off by {off}.", reward=reward, done=done)

    @property
    def state(self):
        return self._state


class Move(Action):
    amount: int
    doubled: bool = False
    note: str = ""


class Position(Observation):
    at: int
    goal: int


class Counting(Environment):
    """Reach a goal; every step costs."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._goal, self._at, self._state = random.Random(seed).randint(3, 30), 0, State(episode_id=episode_id)
        return Position(at=0, goal=self._goal)

    def step(self, action, timeout_s=None, **kwargs):
        self._at += action.amount * (2 if action.doubled else 1)
        done = self._at >= self._goal
        return Position(
            at=self._at, goal=self._goal, done=done, reward=float(self._at == self._goal) if done else -0.01
        )

    @property
    def state(self):
        return self._state


class Tools(MCPEnvironment):
    """Two tools; opening the right door ends it."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        mcp = FastMCP("doors")

        @mcp.tool
        def listen(door: int) -> str:
            """Listen at a door."""
            return "water" if door == self._right else "nothing"

        @mcp.tool
        def open_door(door: int) -> str:
            """Open a door."""
            return "treasure" if door == self._right else "a wall"

        super().__init__(mcp)
        self._state = State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._right, self._state = random.Random(seed).randint(1, 3), State(episode_id=episode_id)
        return Observation(done=False)

    def step(self, action, timeout_s=None, **kwargs):
        return self._score(action, super().step(action, timeout_s=timeout_s, **kwargs))

    async def step_async(self, action, timeout_s=None, **kwargs):
        return self._score(action, await super().step_async(action, timeout_s=timeout_s, **kwargs))

    def _score(self, action, seen):
        if isinstance(action, CallToolAction) and action.tool_name == "open_door":
            seen.done, seen.reward = True, float(action.arguments.get("door") == self._right)
        return seen

    def _step_impl(self, action, timeout_s=None, **kwargs):
        return Observation(done=False)

    @property
    def state(self):
        return self._state


@contextlib.asynccontextmanager
async def tell(_):
    print("listening", flush=True)
    yield


app = FastAPI(lifespan=tell)
app.mount("/guessing", create_fastapi_app(Guessing, Guess, Hint, max_concurrent_envs=PLACES))
app.mount("/counting", create_fastapi_app(Counting, Move, Position, max_concurrent_envs=32))
app.mount("/tools", create_fastapi_app(Tools, CallToolAction, CallToolObservation, max_concurrent_envs=32))

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
