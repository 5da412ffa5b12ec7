# SPDX-License-Identifier: Apache-2.0
"""Find the answer of a rollout, and decide whether it is the expected one: the same text or the same number.

`is_same_answer` compares as NeMo Gym does. `is_same_value` also knows fractions and thousands separators.
"""

import json
import re
from decimal import Decimal
from fractions import Fraction

from nemo_gym import grading
from nemo_gym.openai_utils import NeMoGymResponse

TOLERANCE = Fraction(1, 10**6)
MAX_CHARS = 1000

_FLOAT_TOLERANCE = 1e-6
# Of small numbers, a millionth says too little.
_SMALL_TOLERANCE = 1e-3
_MARKS = ((r"\(", r"\)"), ("$", "$"), (r"\text{", "}"))

_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")


def find_answer(response: NeMoGymResponse) -> str | None:
    """Return what the newest message with a box in its answer has in its last box; else the newest tool output's."""
    messages = [item for item in response.output if item.type == "message" and item.role == "assistant"]
    for item in reversed(messages):
        said = "".join(part.text for part in item.content if part.type == "output_text")
        if box := grading.last_box(grading.strip_thinking(said)):
            return box
    for item in reversed(response.output):
        if item.type == "function_call_output" and (box := grading.last_box(_read_stdout(item.output))):
            return box
    return None


def is_same_answer(answer: str, expected: str, *, absolute_tolerance: bool = False) -> bool:
    """Return whether both are the same text, apart from the marks around it, or the same number up to a millionth.

    Small numbers must also agree in their leading digits, unless `absolute_tolerance` says that a millionth is enough.
    """
    ours = _unwrap(answer)
    theirs = _unwrap(expected)
    if ours == theirs:
        return True
    number = _read_float(ours)
    wanted = _read_float(theirs)
    if number is None or wanted is None:
        return False
    allowed = _FLOAT_TOLERANCE * max(1, abs(wanted))
    if wanted and not absolute_tolerance:
        allowed = min(allowed, _SMALL_TOLERANCE * abs(wanted))
    return abs(number - wanted) < allowed


def _read_stdout(output: object) -> str:
    """Return what the code of a tool call printed; all of an output that is not the tool's JSON object."""
    text = output if isinstance(output, str) else json.dumps(output, default=str)
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return str(said.get("stdout") or "") if isinstance(said, dict) else text


def _unwrap(text: str) -> str:
    text = text.strip()
    for start, end in _MARKS:
        if len(text) > 1 and text.startswith(start) and text.endswith(end):
            text = text[len(start) : -len(end)].strip()
    return " ".join(text.split())


def _read_float(text: str) -> float | None:
    # Python also reads `1_0` and the digits of other scripts.
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def is_same_value(answer: str, expected: str) -> bool:
    """Return whether `answer` says what `expected` does; numbers that are not whole need not be exact."""
    ours = _plain(answer)
    theirs = _plain(expected)
    if ours == theirs:
        return ours != ""
    if max(len(ours), len(theirs)) > MAX_CHARS:
        return False
    number = _number(ours)
    wanted = _number(theirs)
    if number is None or wanted is None:
        return False
    allowed = 0 if wanted.denominator == 1 else TOLERANCE * min(max(1, abs(wanted)), 1000 * abs(wanted))
    return abs(number - wanted) <= allowed


def _plain(text: str) -> str:
    """Return `text` without what only says how it is set."""
    text = text.strip().strip("$").replace("\\,", "").replace("\\!", "").replace("{,}", ",").replace("\u2212", "-")
    text = _THOUSANDS.sub("", text)
    return " ".join(_FRACTION.sub(r"\1/\2", text).rstrip(".").split()).casefold()


def _number(text: str) -> Fraction | None:
    numerator, slash, denominator = text.replace(" ", "").partition("/")
    parts = [numerator, denominator] if slash else [numerator]
    if not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    values = [Fraction(Decimal(part)) for part in parts]
    if not slash:
        return values[0]
    return values[0] / values[1] if values[1] else None
