# SPDX-License-Identifier: Apache-2.0
"""One turn: write the words of a sentence in the opposite order."""

import random

import verifiers as vf
from datasets import Dataset

WORDS = ["amber", "birch", "cedar", "delta", "ember", "frost", "grove", "heron", "inlet", "jetty"]


def load_environment(size: int = 60, seed: int = 0) -> vf.Environment:
    """Return the environment: half of the reward is for the words, half for their order."""
    draw = random.Random(seed)
    sentences = [draw.sample(WORDS, draw.randint(2, 5)) for _ in range(size)]
    rows = [{"question": " ".join(words), "answer": " ".join(reversed(words))} for words in sentences]

    def right_words(completion: vf.Messages, answer: str) -> float:
        return float(sorted(completion[-1]["content"].split()) == sorted(answer.split()))

    def right_order(completion: vf.Messages, answer: str) -> float:
        return float(completion[-1]["content"].strip() == answer)

    return vf.SingleTurnEnv(
        dataset=Dataset.from_list(rows),
        system_prompt="Write the words in the opposite order, and nothing else.",
        rubric=vf.Rubric(funcs=[right_words, right_order], weights=[0.5, 0.5]),
    )
