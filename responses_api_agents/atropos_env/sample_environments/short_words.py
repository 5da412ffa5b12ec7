# SPDX-License-Identifier: Apache-2.0
"""A group: name a word that contains two letters. Answers are scored together; short right ones score best."""

import itertools
import random
import string
from typing import Any

from atroposlib.envs.base import BaseEnv, BaseEnvConfig, ScoredDataGroup
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from atroposlib.utils.tokenize_for_trainer import tokenize_for_trainer


class ShortWords(BaseEnv):
    """Gives -1 for a word without the letters, else 0 to 1 by its length relative to the longest of the group.

    A group whose answers are all the same is dropped, as environments made for training do.
    """

    name = "short_words"

    @classmethod
    def config_init(cls) -> tuple[BaseEnvConfig, list[APIServerConfig]]:
        return BaseEnvConfig(tokenizer_name="bytes", group_size=4, use_wandb=False), [APIServerConfig()]

    async def setup(self) -> None:
        pairs = list(itertools.combinations(string.ascii_lowercase, 2))
        random.Random(0).shuffle(pairs)
        self._pairs = iter(pairs)

    async def get_next_item(self) -> tuple[str, str] | None:
        return next(self._pairs, None)

    async def collect_trajectories(self, item: tuple[str, str]) -> tuple[ScoredDataGroup | None, list[Any]]:
        messages = [{"role": "user", "content": f"Name a word with {item[0]} and {item[1]}."}]
        size = self.config.group_size
        answer = await self.server.chat_completion(messages=messages, n=size, max_tokens=32)
        said = [choice.message.content or "" for choice in answer.choices]
        if len(set(said)) == 1:
            return None, []
        longest = max(map(len, said))
        group = ScoredDataGroup(tokens=[], masks=[], scores=[])
        for word in said:
            tokens = tokenize_for_trainer(self.tokenizer, [*messages, {"role": "assistant", "content": word}])
            group["tokens"].append(tokens["tokens"])
            group["masks"].append(tokens["masks"])
            group["scores"].append(1.0 - len(word) / (2 * longest) if set(item) <= set(word) else -1.0)
        return group, []

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no other data."""


if __name__ == "__main__":
    ShortWords.cli()
