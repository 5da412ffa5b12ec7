# SPDX-License-Identifier: Apache-2.0
"""Tools: look up prices and add them up."""

import random

import verifiers as vf
from datasets import Dataset

PRICES = {"apple": 3, "bread": 5, "cheese": 8, "dates": 4, "eggs": 6}


def look_up_price(item: str) -> int:
    """Return the price of an item.

    Args:
        item: Its name.
    """
    return PRICES[item]


def load_environment(size: int = 60, seed: int = 0) -> vf.Environment:
    """Return the environment: the reward is for the sum, and a little for every price lookup."""
    draw = random.Random(seed)
    baskets = [draw.sample(sorted(PRICES), 2) for _ in range(size)]
    rows = [
        {"question": f"What do {first} and {second} cost together?", "answer": str(PRICES[first] + PRICES[second])}
        for first, second in baskets
    ]

    def right_sum(completion: vf.Messages, answer: str) -> float:
        return float(str(completion[-1]["content"]).strip() == answer)

    def looked_up(completion: vf.Messages) -> float:
        return sum(message["role"] == "tool" for message in completion) / 2

    return vf.ToolEnv(
        dataset=Dataset.from_list(rows),
        tools=[look_up_price],
        rubric=vf.Rubric(funcs=[right_sum, looked_up], weights=[1.0, 0.1]),
        max_turns=5,
    )
