# SPDX-License-Identifier: Apache-2.0
"""What a server is sent to see whether it keeps to the contract: right answers, odd replies of models, broken bodies.

Answers that should get the full reward are found in this order: `solution(row)` in the server's `generate_data.py`;
cases of kind `full_reward` in `tests/verifier_cases.jsonl`; a field of the row that is named like an answer, written
in one of the common ways.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from nemo_gym._checks.play import Answer, Turn, function_call, message
from nemo_gym._wire.params import NeMoGymResponseCreateParamsNonStreaming

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


def guesses(rows: Sequence[Mapping[str, Any]]) -> Iterator[Guess]:
    """Yield ways to say the answers that the rows seem to hold, the likeliest first."""
    for field in ANSWER_FIELDS:
        answers = [_answer(row, field) for row in rows]
        if not rows or any(answer is None for answer in answers):
            continue
        for form in FORMS:
            yield Guess(field, form, tuple(form.format(answer=answer) for answer in answers))


def _answer(row: Mapping[str, Any], field: str) -> str | None:
    metadata = row.get("verifier_metadata")
    value = row.get(field, metadata.get(field) if isinstance(metadata, Mapping) else None)
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def as_turns(solution: Any) -> list[Turn]:
    """Return the turns of a solution that came as JSON, in which a pair is a list."""
    if isinstance(solution, str):
        return [solution]
    if not isinstance(solution, list):
        raise ValueError(f"a solution is a list of texts and of pairs (tool, arguments), not {solution!r}")
    return [_turn(turn) for turn in solution]


def _turn(turn: Any) -> Turn:
    if isinstance(turn, str | dict):
        return turn
    if isinstance(turn, list) and len(turn) == 2 and isinstance(turn[0], str) and isinstance(turn[1], dict):
        return turn[0], turn[1]
    raise ValueError(f"a turn is a text or a pair (tool, arguments), not {turn!r}")


# --- odd replies and broken bodies ------------------------------------------------------------------------------------


NO_BODIES: tuple[Any, ...] = (b"{", b"", b"\xff\xfe", [], "text", None)
NO_RESPONSES: tuple[dict[str, Any], ...] = (
    {},
    {"response": None},
    {"response": "text"},
    {"response": {}},
    {"response": {"output": "text"}},
    {"responses_create_params": None},
)


def odd_replies(tools: Sequence[str]) -> dict[str, list[Turn]]:
    """Return outputs that real models give."""
    tool = tools[0] if tools else "no_such_tool"
    refusal = {**message(""), "content": [{"type": "refusal", "refusal": "I cannot help with that."}]}
    thinking = {"type": "reasoning", "id": "rs_0", "summary": [{"type": "summary_text", "text": "Hm."}]}
    return {
        "white space": [" \n\t "],
        "a refusal": [refusal],
        "thinking only": [thinking],
        "unclosed brackets": ["\\boxed{ <answer> ``` [ ( {"],
        "characters of all kinds": ["\u0000\u202e\U0001f600 \\boxed{\u0663} ∞ NaN -1e999"],
        "very long text": ["a{" * 50_000],
        "a tool call that is no JSON": [function_call(tool, "{not json")],
        "a tool call that is no object": [function_call(tool, "[1]")],
        "a call of an unknown tool": [function_call("no_such_tool", "{}")],
    }


def row_problem(row: Mapping[str, Any]) -> str | None:
    """Return why `row` is not a task; None if it is one."""
    params = row.get("responses_create_params")
    if not isinstance(params, Mapping):
        return "it has no `responses_create_params`"
    if params.get("input") is None:
        return "`responses_create_params` has no `input`"
    try:
        NeMoGymResponseCreateParamsNonStreaming.model_validate(params)
    except ValidationError as error:
        first, *_ = error.errors(include_url=False)
        return f"responses_create_params.{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return None


def routes_of(openapi: Answer) -> frozenset[str]:
    """Return the paths that a server answers POST requests at."""
    body = openapi.body
    paths = body.get("paths") if isinstance(body, dict) else None
    return frozenset(path for path, methods in (paths or {}).items() if "post" in methods)
