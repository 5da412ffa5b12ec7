# SPDX-License-Identifier: Apache-2.0
"""A game without a library whose opponent is a model: the number that is said twice in a row ends it."""

from typing import Any


class EchoGame:
    """Players say numbers in turn; whoever repeats the other loses. `asks` tells that the opponent is next."""

    def __init__(self, opponent_begins: bool) -> None:
        self._said: list[str] = []
        self._is_opponents_turn = opponent_begins

    def reset(self, seed: int) -> tuple[str | None, dict[str, Any]]:
        observation, _, _, _, info = self._describe()
        return observation, info

    def step(self, text: str) -> tuple[str | None, float, bool, bool, dict[str, Any]]:
        if text in self._said[-1:]:
            return None, 1.0 if self._is_opponents_turn else -1.0, True, False, {"said": self._said}
        self._said.append(text)
        self._is_opponents_turn = not self._is_opponents_turn
        return self._describe()

    def _describe(self) -> tuple[str | None, float, bool, bool, dict[str, Any]]:
        told = f"So far: {' '.join(self._said)}"
        if self._is_opponents_turn:
            return None, 0.0, False, False, {"asks": told}
        return told, 0.0, False, False, {"said": self._said}


def make_echo_game(task: dict[str, Any]) -> EchoGame:
    return EchoGame(task["seat"] == 1)
