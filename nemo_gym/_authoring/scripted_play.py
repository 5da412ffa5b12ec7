# SPDX-License-Identifier: Apache-2.0
"""Plays a task against a resources server the way an agent would, with turns that are known beforehand.

A turn is what a model does: text that it says, or a tool call as a pair of name and arguments. Which turns a task is
played with, and what its reward should be, is decided in `contract`.

Answers that should get the full reward are found in this order: `solution(row)` in the server's `generate_data.py`;
cases of kind `full_reward` in `tests/verifier_cases.jsonl`; a field of the row that is named like an answer, written
in one of the common ways.
"""

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

Turn = str | tuple[str, Mapping[str, Any]] | Mapping[str, Any]
"""What the model says, a tool call, or an output item as it is."""


@dataclass(frozen=True)
class Answer:
    """What a server answered."""

    status: int
    text: str
    cookies: Mapping[str, str] = field(default_factory=dict)
    allowed: frozenset[str] = frozenset()
    """The methods in its `Allow` header."""

    @property
    def body(self) -> Any:
        """The parsed body; None if it is not JSON."""
        try:
            return orjson.loads(self.text)
        except orjson.JSONDecodeError:
            return None

    @property
    def shown(self) -> str:
        """The status and the start of the body, for a message."""
        text = " ".join(self.text.split())
        return f"status {self.status}: {text if len(text) <= 300 else f'{text[:300]}…'}"


Call = Callable[[str, str, bytes, Mapping[str, str]], Awaitable[Answer]]
"""Calls the server: method, path, body, cookies."""


@dataclass(frozen=True)
class Played:
    """How a task ended: with the verifier's answer, or with a call that failed on the way."""

    answer: Answer
    outputs: tuple[str, ...] = ()
    """What the tools answered."""
    failed_at: str | None = None
    """The path of the call that failed."""

    @property
    def reward(self) -> float | None:
        """The reward; None if there is no finite one."""
        body = self.answer.body
        value = body.get("reward") if self.failed_at is None and isinstance(body, dict) else None
        is_number = isinstance(value, int | float) and math.isfinite(value)
        return float(value) if is_number and self.answer.status == 200 else None  # type: ignore[arg-type]

    @property
    def problem(self) -> str | None:
        """Why there is no reward."""
        if self.failed_at is not None:
            return f"POST {self.failed_at} gave {self.answer.shown}"
        return f"POST /verify gave {self.answer.shown}" if self.reward is None else None


class Table:
    """A server to play against. Every task has a session of its own."""

    def __init__(self, call: Call, *, steps: bool = False) -> None:
        """Play by `/reset` and `/step` if `steps`, else by tools and `/verify`."""
        self._call = call
        self._steps = steps

    async def post(self, path: str, body: Any, cookies: Mapping[str, str] | None = None) -> Answer:
        """POST `body`, as it is if it is bytes."""
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        return await self._call("POST", path, raw, cookies or {})

    async def get(self, path: str) -> Answer:
        return await self._call("GET", path, b"", {})

    async def takes_posts(self, path: str) -> bool:
        """Return whether there is a route for POST requests at `path`.

        It is asked by a method that no route has, since the OpenAPI document takes half a second of work to make.
        """
        return "POST" in (await self._call("OPTIONS", path, b"", {})).allowed

    async def play(self, task: Mapping[str, Any], turns: Sequence[Turn]) -> Played:
        """Play `task` with `turns`, from the start of its session to its reward."""
        if self._steps:
            return await self._play_steps(task, turns)
        seeded = await self.post("/seed_session", task)
        if seeded.status != 200:
            return Played(seeded, failed_at="/seed_session")
        cookies = dict(seeded.cookies)
        output = list[Mapping[str, Any]]()
        answers = list[str]()
        for number, turn in enumerate(turns):
            item = _make_item(turn, number)
            output.append(item)
            if isinstance(turn, tuple):
                answer = await self.post(f"/{turn[0]}", dict(turn[1]), cookies)
                if answer.status >= 500:
                    return Played(answer, tuple(answers), f"/{turn[0]}")
                cookies |= answer.cookies
                answers.append(answer.text)
                output.append({"type": "function_call_output", "call_id": item["call_id"], "output": answer.text})
            await asyncio.sleep(0)  # other sessions have their turn
        verified = await self.post("/verify", {**task, "response": make_response(output)}, cookies)
        return Played(verified, tuple(answers))

    async def _play_steps(self, task: Mapping[str, Any], turns: Sequence[Turn]) -> Played:
        answer = await self.post("/reset", task)
        if answer.status != 200:
            return Played(answer, failed_at="/reset")
        cookies = dict(answer.cookies)
        total = 0.0
        observations = list[str]()
        for number, turn in enumerate(turns or [{}]):
            output = [_make_item(turn, number)] if turn else []
            answer = await self.post("/step", {**task, "response": make_response(output)}, cookies)
            step = answer.body
            if answer.status != 200 or not isinstance(step, dict):
                return Played(answer, tuple(observations), "/step")
            cookies |= answer.cookies
            observations.append(json.dumps(step.get("observation")))
            total += float(step.get("reward") or 0.0)
            if step.get("terminated") or step.get("truncated"):
                break
            await asyncio.sleep(0)
        return Played(Answer(200, json.dumps({"reward": total})), tuple(observations))


def make_response(output: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a model's response with `output`."""
    return {
        "id": "resp_check",
        "created_at": 0.0,
        "model": "env-check",
        "object": "response",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def _make_item(turn: Turn, number: int) -> Mapping[str, Any]:
    if isinstance(turn, str):
        return make_message(turn, number)
    if isinstance(turn, tuple):
        name, arguments = turn
        return make_function_call(name, json.dumps(dict(arguments)), number)
    return turn


def make_message(text: str, number: int = 0) -> dict[str, Any]:
    """Return an assistant message."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": content}


def make_function_call(name: str, arguments: str, number: int = 0) -> dict[str, Any]:
    """Return a tool call whose arguments are any text."""
    key = f"call_{number}"
    return {
        "type": "function_call",
        "id": key,
        "call_id": key,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


# --- how long a server does not answer --------------------------------------------------------------------------------


STALL_WARNS_S = 0.1
STALL_FAILS_S = 1.0
_BEAT_S = 0.005
_TRIES = 2


async def measure_longest_stall(beat: Callable[[], Awaitable[Any]], work: Callable[[], Awaitable[None]]) -> float:
    """Return the longest time that `beat` had to wait during `work`, in seconds.

    The machine has other things to do, too: of several tries the best one counts, in which only the work is slow.
    """
    stalls = []
    for _ in range(_TRIES):
        stalls.append(await _measure_stall(beat, work))
        if stalls[-1] < STALL_WARNS_S:
            break
    return min(stalls)


async def _measure_stall(beat: Callable[[], Awaitable[Any]], work: Callable[[], Awaitable[None]]) -> float:
    longest = 0.0
    is_over = False

    async def listen() -> None:
        nonlocal longest
        while not is_over:
            started = time.monotonic()
            await asyncio.sleep(_BEAT_S)
            await beat()
            longest = max(longest, time.monotonic() - started - _BEAT_S)

    listening = asyncio.create_task(listen())
    try:
        await work()
        is_over = True
        await listening  # a beat that the work has held up counts to its end
    finally:
        listening.cancel()
    return longest


# --- what a server is sent: right answers, odd replies of models, broken bodies ---------------------------------------


ANSWER_FIELDS = (
    "expected_answer",
    "answer",
    "ground_truth",
    "expected_output",
    "expected_result",
    "gold",
    "target",
    "label",
    "solution",
)
FORMS = (
    "{answer}",
    "\\boxed{{{answer}}}",
    "Answer: {answer}",
    "Final answer: {answer}",
    "<answer>{answer}</answer>",
    "#### {answer}",
    "The answer is {answer}.",
)


@dataclass(frozen=True)
class Guess:
    """A way to say the answers: the same field in the same form for all rows."""

    field: str
    form: str
    replies: tuple[str, ...]


def guess_answers(rows: Sequence[Mapping[str, Any]]) -> Iterator[Guess]:
    """Yield ways to say the answers that the rows seem to hold, the likeliest first."""
    for name in ANSWER_FIELDS:
        answers = [_read_answer(row, name) for row in rows]
        if not rows or any(answer is None for answer in answers):
            continue
        for form in FORMS:
            yield Guess(name, form, tuple(form.format(answer=answer) for answer in answers))


def _read_answer(row: Mapping[str, Any], name: str) -> str | None:
    metadata = row.get("verifier_metadata")
    value = row.get(name, metadata.get(name) if isinstance(metadata, Mapping) else None)
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def parse_turns(solution: Any) -> list[Turn]:
    """Return the turns of a solution that came as JSON, in which a pair is a list."""
    if isinstance(solution, str):
        return [solution]
    if not isinstance(solution, list):
        raise ValueError(f"a solution is a list of texts and of pairs (tool, arguments), not {solution!r}")
    return [_parse_turn(turn) for turn in solution]


def _parse_turn(turn: Any) -> Turn:
    if isinstance(turn, str | dict):
        return turn
    if isinstance(turn, list) and len(turn) == 2 and isinstance(turn[0], str) and isinstance(turn[1], dict):
        return turn[0], turn[1]
    raise ValueError(f"a turn is a text or a pair (tool, arguments), not {turn!r}")


NO_BODIES: tuple[Any, ...] = (b"{", b"", b"\xff\xfe", [], "text", None)
NO_RESPONSES: tuple[dict[str, Any], ...] = (
    {},
    {"response": None},
    {"response": "text"},
    {"response": {}},
    {"response": {"output": "text"}},
    {"responses_create_params": None},
)


def make_odd_replies(tools: Sequence[str]) -> dict[str, list[Turn]]:
    """Return outputs that real models give."""
    tool = tools[0] if tools else "no_such_tool"
    refusal = {**make_message(""), "content": [{"type": "refusal", "refusal": "I cannot help with that."}]}
    thinking = {"type": "reasoning", "id": "rs_0", "summary": [{"type": "summary_text", "text": "Hm."}]}
    return {
        "white space": [" \n\t "],
        "a refusal": [refusal],
        "thinking only": [thinking],
        "unclosed brackets": ["\\boxed{ <answer> ``` [ ( {"],
        "characters of all kinds": ["\u0000\u202e\U0001f600 \\boxed{\u0663} ∞ NaN -1e999"],
        "very long text": ["a{" * 50_000],
        "a tool call that is no JSON": [make_function_call(tool, "{not json")],
        "a tool call that is no object": [make_function_call(tool, "[1]")],
        "a call of an unknown tool": [make_function_call("no_such_tool", "{}")],
    }
