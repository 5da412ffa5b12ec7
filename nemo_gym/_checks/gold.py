# SPDX-License-Identifier: Apache-2.0
"""Answers that should get the full reward: where an environment says them, and how they are guessed where it does not.

In this order: `solution(row)` in the server's `generate_data.py`; cases of kind `full_reward` in
`tests/verifier_cases.jsonl`; a field of the row that is named like an answer, said in one of the common ways.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_gym._checks.play import Turn

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
    """Ways to say the answers that the rows seem to hold, the likeliest first."""
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
    """The turns of a solution that came as JSON, in which a pair is a list."""
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
