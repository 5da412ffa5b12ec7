# SPDX-License-Identifier: Apache-2.0
"""Rollouts files of any size for the benchmarks of the viewer: made up, but shaped like those of a run.

Every row is a conversation of about 3 KB with reasoning, tool calls and a verifier's fields. The same seed gives the
same file.
"""

import random
from pathlib import Path
from typing import Any

import orjson

ROW_BYTES = 3000
_AGENTS = ("search_agent", "calculator_agent")
_TOOLS = ("search", "open_page", "calculate", "submit")
_PROSE = (
    "the a of to and in that it is was for on are with as at be this have from or one had by word but not what all "
    "were we when your can said there use an each which she do how their if will up other about out many then them "
    "these so some her would make like him into time has look two more write go see number no way could people my "
    "than first water been call who oil its now find long down day did get come made may part"
)


class _Writer:
    """Makes rows out of slices of one long text: composing every sentence anew would take minutes."""

    def __init__(self, seed: int, repeats: int) -> None:
        self._random = random.Random(seed)
        self._repeats = repeats
        self._text = " ".join(self._random.choices(_PROSE.split(), k=60_000))
        self._skill = 0.5

    def row(self, number: int) -> dict[str, Any]:
        task, rollout = divmod(number, self._repeats)
        draw = self._random.random
        if rollout == 0:
            self._skill = draw()
        passed = draw() < self._skill
        calls = int(draw() * 5)
        items = self._items(number, calls)
        incomplete = draw() < 0.03
        agent = _AGENTS[task % len(_AGENTS)]
        return {
            "responses_create_params": {
                "input": [
                    {"role": "system", "content": "You answer questions. Look before you answer."},
                    {"role": "user", "content": f"Question {task}: {self._words(300)}?"},
                ],
                "tools": [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in _TOOLS],
                "temperature": 1.0,
                "max_output_tokens": 4096,
            },
            "response": {
                "id": f"resp_{number}",
                "object": "response",
                "model": "made-up",
                "status": "incomplete" if incomplete else "completed",
                "incomplete_details": {"reason": "max_output_tokens"} if incomplete else None,
                "output": items,
                "usage": {
                    "input_tokens": 300 + 90 * calls,
                    "output_tokens": 150 + 60 * calls + int(draw() * 100),
                    "total_tokens": 0,
                },
            },
            "reward": float(passed),
            "expected_answer": str(task % 97),
            "extracted_answer": str(task % 97) if passed else None,
            "format_ok": draw() < 0.95,
            "overlap": round(draw(), 3),
            "_ng_task_index": task,
            "_ng_rollout_index": rollout,
            "agent_ref": {"type": "responses_api_agents", "name": agent},
        }

    def _items(self, number: int, calls: int) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        for call in range(calls):
            name = _TOOLS[(number + call) % len(_TOOLS)]
            thought = [{"type": "summary_text", "text": self._words(250)}]
            call_id = f"call_{number}_{call}"
            items.append({"type": "reasoning", "id": f"rs_{call}", "summary": thought})
            items.append(
                {
                    "type": "function_call",
                    "id": f"fc_{call}",
                    "call_id": call_id,
                    "name": name,
                    "arguments": f'{{"query": "{self._words(60)}"}}',
                    "status": "completed",
                }
            )
            items.append({"type": "function_call_output", "call_id": call_id, "output": self._words(200)})
        text = {"type": "output_text", "text": f"{self._words(500)}. The answer is {number % 97}.", "annotations": []}
        items.append({"type": "message", "id": "msg", "role": "assistant", "status": "completed", "content": [text]})
        return items

    def _words(self, characters: int) -> str:
        start = int(self._random.random() * (len(self._text) - characters))
        return self._text[start : start + characters].strip()


def write_rollouts(path: Path, size_bytes: int = 1 << 30, *, seed: int = 0, repeats: int = 8) -> int:
    """Write rollouts until the file is so large; the number of rows."""
    writer = _Writer(seed, repeats)
    written = 0
    number = 0
    with open(path, "wb", buffering=1 << 20) as file:
        while written < size_bytes:
            written += file.write(orjson.dumps(writer.row(number), option=orjson.OPT_APPEND_NEWLINE))
            number += 1
    return number


def write_failures(path: Path, rows: int, *, first_task: int = 0) -> None:
    """Write the failures file of a run in which so many rollouts failed."""
    kinds = ("timeout", "model_endpoint", "verifier")
    with open(path, "wb") as file:
        for number in range(rows):
            kind = kinds[number % len(kinds)]
            failure = {
                "schema": 1,
                "kind": kind,
                "boundary": "/run",
                "retryable": kind != "verifier",
                "message": f"made up: {kind} at call {number % 7}",
                "attempts": 3,
                "elapsed_s": 12.5,
                "at": "2026-01-01T00:00:00+00:00",
            }
            row = {
                "_ng_task_index": first_task + number,
                "_ng_rollout_index": 0,
                "agent_ref": {"type": "responses_api_agents", "name": _AGENTS[number % len(_AGENTS)]},
                "_ng_failure_class": kind,
                "_ng_failure": failure,
            }
            file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
