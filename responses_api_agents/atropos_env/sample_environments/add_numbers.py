# SPDX-License-Identifier: Apache-2.0
"""One turn: add two numbers. Each trajectory is scored on its own."""

import random
from typing import Any

from atroposlib.envs.base import BaseEnv, BaseEnvConfig, ScoredDataItem
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from atroposlib.utils.tokenize_for_trainer import tokenize_for_trainer


class AddNumbers(BaseEnv):
    """Gives 1 for the sum, less the farther off the answer is, and -1 if it is not a number."""

    name = "add_numbers"

    @classmethod
    def config_init(cls) -> tuple[BaseEnvConfig, list[APIServerConfig]]:
        return BaseEnvConfig(tokenizer_name="bytes", group_size=4, use_wandb=False), [APIServerConfig()]

    async def setup(self) -> None:
        draw = random.Random(0)
        self._pairs = [(draw.randint(1, 99), draw.randint(1, 99)) for _ in range(60)]
        self._next = 0

    async def get_next_item(self) -> tuple[int, int] | None:
        if self._next == len(self._pairs):
            return None
        self._next += 1
        return self._pairs[self._next - 1]

    async def collect_trajectory(self, item: tuple[int, int]) -> tuple[ScoredDataItem, list[Any]]:
        messages = [
            {"role": "system", "content": "Answer with the number, and nothing else."},
            {"role": "user", "content": f"What is {item[0]} + {item[1]}?"},
        ]
        answer = await self.server.chat_completion(messages=messages, n=1, max_tokens=32, temperature=1.0)
        said = answer.choices[0].message.content or ""
        tokens = tokenize_for_trainer(self.tokenizer, [*messages, {"role": "assistant", "content": said}])
        try:
            score = 1.0 / (1 + abs(int(said) - sum(item)))
        except ValueError:
            score = -1.0
        return ScoredDataItem(tokens=tokens["tokens"], masks=tokens["masks"], scores=score), []

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no other data."""


if __name__ == "__main__":
    AddNumbers.cli()
