# SPDX-License-Identifier: Apache-2.0
"""An environment as somebody would write it for Aviary, and a dataset of its tasks."""

import random

from aviary.core import Environment, Message, Messages, TaskDataset, Tool, ToolRequestMessage
from pydantic import BaseModel


class Rules(BaseModel):
    depth: int = 3
    patience: int = 6


class Cave(Environment[None]):
    """Walk to the bottom of a cave; passages lead on at random, and calls that make no sense cost something."""

    def __init__(self, rules: Rules | None = None, entrance: str = "north"):
        self.rules, self.entrance = rules or Rules(), entrance

    async def reset(self) -> tuple[Messages, list[Tool]]:
        self.level, self.steps = 0, 0
        self.tools = [Tool.from_function(self.walk), Tool.from_function(self.listen)]
        return [
            Message(role="system", content="You are in a cave."),
            Message(content=f"You came from the {self.entrance}."),
        ], self.tools

    async def step(self, action: Message) -> tuple[Messages, float, bool, bool]:
        self.steps += 1
        out_of_patience = self.steps >= self.rules.patience
        if not isinstance(action, ToolRequestMessage):
            messages, reward, done, _ = self.default_no_tool_calls_response
            return messages, reward - 0.125, done, out_of_patience
        before = self.level
        _, invalid = self.filter_invalid_tool_calls(action)
        answers = await self.exec_tool_calls(action, concurrency=False)
        reward = (self.level - before) / self.rules.depth - 0.25 * len(invalid.tool_calls)
        done = self.level >= self.rules.depth
        told = [*answers, Message(content=f"You are on level {self.level}.")]
        return told, reward, done, out_of_patience and not done

    def walk(self, passage: str, fast: bool = False) -> str:
        """Take a passage.

        Args:
            passage: Where it leads: left or right.
            fast: Whether to run.
        """
        if passage not in ("left", "right"):
            raise ValueError(f"there is no passage {passage}")
        self.level = max(0, self.level + random.choice((-1, 1, 1)) * (2 if fast else 1))
        return f"It is {random.random():.3f} dark."

    def listen(self) -> str:
        """Stand still."""
        return "Water drips."


class Caves(TaskDataset[Cave]):
    """Caves of growing depth."""

    def __init__(self, count: int):
        self._depths = range(1, count + 1)

    def __len__(self) -> int:
        return len(self._depths)

    def get_new_env_by_idx(self, idx: int) -> Cave:
        return Cave(Rules(depth=self._depths[idx]))
