# SPDX-License-Identifier: Apache-2.0
"""Count how often a letter occurs in a word."""

import random
from collections.abc import Iterator

import verifiers.v1 as vf

__all__ = ["CountLetters"]

WORDS = ["banana", "mississippi", "parallel", "committee", "bookkeeper", "tattoo"]


class CountData(vf.TaskData):
    """A question and its answer."""

    answer: int


class CountTask(vf.Task[CountData]):
    """Scores the right number, and any number a little."""

    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        """Return 1 for the right number."""
        return float(trace.last_reply.strip() == str(self.data.answer))

    @vf.reward(weight=0.1)
    async def is_number(self, trace: vf.Trace) -> float:
        """Return 1 for any number."""
        return float(trace.last_reply.strip().isdigit())


class CountConfig(vf.TasksetConfig):
    """The number of tasks, and their seed."""

    size: int = 60
    seed: int = 0


class CountLetters(vf.Taskset[CountTask, CountConfig]):
    """Questions about the letters of words."""

    def load(self) -> Iterator[CountTask]:
        """Yield the tasks."""
        draw = random.Random(self.config.seed)
        for _ in range(self.config.size):
            word = draw.choice(WORDS)
            letter = draw.choice(word)
            prompt = f"How often does {letter} occur in {word}? Answer with a number."
            yield CountTask(CountData(prompt=prompt, answer=word.count(letter)), self.config.task)
