# SPDX-License-Identifier: Apache-2.0
"""Several turns: guess a number from hints of higher or lower. Tracks tokens with a managed server."""

import random
from typing import Any

from atroposlib.envs.base import BaseEnv, BaseEnvConfig, ScoredDataItem
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from pydantic import Field


class GuessNumberConfig(BaseEnvConfig):
    """Config of the game."""

    highest: int = Field(default=30, description="the highest number; the lowest is 1")
    turns: int = Field(default=6, description="the maximum number of guesses")


class GuessNumber(BaseEnv):
    """Gives more the sooner the number is found, and 0 if it is not found."""

    name = "guess_number"
    env_config_cls = GuessNumberConfig

    @classmethod
    def config_init(cls) -> tuple[GuessNumberConfig, list[APIServerConfig]]:
        return GuessNumberConfig(tokenizer_name="bytes", use_wandb=False), [APIServerConfig()]

    async def setup(self) -> None:
        self._draw = random.Random(0)

    async def get_next_item(self) -> dict[str, int]:
        return {"number": self._draw.randint(1, self.config.highest)}

    async def collect_trajectory(self, item: dict[str, int]) -> tuple[ScoredDataItem, list[Any]]:
        messages = [{"role": "user", "content": f"Guess my number, from 1 to {self.config.highest}. Say only numbers."}]
        score = 0.0
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            for turn in range(self.config.turns):
                answer = await managed.chat_completion(messages=messages, n=1, max_tokens=16)
                said = answer.choices[0].message.content or ""
                if said.strip() == str(item["number"]):
                    score = 1.0 - turn / self.config.turns
                    break
                messages = [*messages, {"role": "assistant", "content": said}]
                messages.append({"role": "user", "content": _compare(said.strip(), item["number"])})
            node = managed.get_state()["nodes"][-1]
        return ScoredDataItem(tokens=node.tokens, masks=node.masked_tokens, scores=score), []

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no other data."""


def _compare(said: str, number: int) -> str:
    if not said.isdecimal():
        return "Say a number."
    return "higher" if int(said) < number else "lower"


if __name__ == "__main__":
    GuessNumber.cli()
