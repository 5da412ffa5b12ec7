# SPDX-License-Identifier: Apache-2.0
"""Gym-like classes as somebody else might have them, and what makes them of a task."""

import os
import random
import time
from typing import Any


class Counting:
    """Adds up the numbers that it is told; `goal` ends it."""

    def __init__(self, goal: int) -> None:
        self._goal, self._sum = goal, 0

    def reset(self, seed: int) -> tuple[str, dict[str, Any]]:
        return f"Reach {self._goal}.", {
            "seed": seed,
            "drawn": random.random(),
            "pid": os.getpid(),
            "hash": hash("seed"),
        }

    def step(self, text: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._sum += int(text)
        return f"You have {self._sum}.", float(text), self._sum >= self._goal, False, {"sum": self._sum}


class Faulty(Counting):
    """Does what it is told, and that is no good."""

    def step(self, text: str) -> Any:
        match text:
            case "raise":
                raise RuntimeError("the board is upside down")
            case "hang":
                time.sleep(3600)
            case "spin":
                while True:
                    pass
            case "crash":
                os._exit(7)
            case "leak":
                self.leaked = bytearray(200 * 2**20)
            case "none" | "nan" | "word" | "digits":
                said = {"none": None, "nan": float("nan"), "word": "ten", "digits": "1.0"}
                return "", said[text], False, False, {}
            case "short":
                return "", 1.0
        return super().step("1")


class Vault:
    """Opens with the right number; its methods are coroutines, as some libraries have them."""

    tools = [
        {
            "type": "function",
            "name": "dial",
            "description": "Dial a number.",
            "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}},
            "strict": False,
        }
    ]

    async def reset(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        return [{"role": "system", "content": "A vault."}, {"role": "user", "content": "Open it."}], {}

    async def step(self, calls: list[Any], text: str) -> Any:
        if not calls:
            return "Use the dial.", 0.0, False, False, {"text": text}
        opened = [call_id for _, arguments, _, call_id in calls if arguments.get("number") == 7]
        outputs = [
            {"type": "function_call_output", "call_id": call_id, "output": "click" if call_id in opened else "-"}
            for _, _, _, call_id in calls
        ]
        return outputs, float(bool(opened)), bool(opened), False, {}


def make_counting(task: dict[str, Any]) -> Counting:
    return Counting(task["goal"])


def make_faulty(task: dict[str, Any]) -> Faulty:
    if task["goal"] < 0:
        raise ValueError("a goal below zero")
    return Faulty(task["goal"])


def make_vault(task: dict[str, Any]) -> Vault:
    return Vault()


def score_capital(answer: str, task: dict[str, Any]) -> Any:
    match answer:
        case "raise":
            raise KeyError("no such country")
        case "hang":
            time.sleep(3600)
        case "crash":
            os._exit(3)
        case "nothing":
            return None
        case "parts":
            return {"right": 0.5, "short": 0.25}
    return float(answer == task["capital"])
