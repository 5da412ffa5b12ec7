# SPDX-License-Identifier: Apache-2.0
"""Several turns: guess a number from hints of higher or lower."""

import random

import verifiers as vf
from datasets import Dataset


class GuessNumber(vf.MultiTurnEnv):
    """Says `higher` or `lower` until the number is found or the turns run out."""

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: object) -> vf.Messages:
        said = str(messages[-1]["content"]).strip()
        target = int(state["answer"])
        if not said.isdigit():
            hint = "Answer with a number."
        elif int(said) == target:
            state["final_env_response"] = [{"role": "user", "content": "Right."}]
            return state["final_env_response"]
        else:
            hint = "higher" if int(said) < target else "lower"
        return [{"role": "user", "content": hint}]


def load_environment(size: int = 60, seed: int = 0, turns: int = 6) -> vf.Environment:
    """Return the environment: the sooner the number is found, the higher the reward."""
    draw = random.Random(seed)
    numbers = [draw.randint(1, 30) for _ in range(size)]
    rows = [{"question": "Guess my number, from 1 to 30.", "answer": str(number)} for number in numbers]

    def found(completion: vf.Messages, answer: str, state: vf.State) -> float:
        guesses = [message["content"].strip() for message in completion if message["role"] == "assistant"]
        return 1.0 - guesses.index(answer) / turns if answer in guesses else 0.0

    return GuessNumber(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[found]), max_turns=turns)
