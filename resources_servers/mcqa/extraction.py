# SPDX-License-Identifier: Apache-2.0
r"""Find the letter that a reply chooses.

`strict_single_letter_boxed` takes the last `\boxed{}` if it holds one letter, `lenient_boxed` also if it holds the text
of exactly one option; the `answer_colon` modes look for a line `Answer: X`. A reply that names no option, or more than
one, has chosen none.
"""

import re
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from nemo_gym import grading

GradingMode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon"]
ConfigGradingMode = Literal[
    "strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"
]

# A pattern that a row brings along may be slow on a long text; answers stand at the end.
_SEARCHED_CHARACTERS = 20_000
_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|mathrm|mathbf|rm)\s*+\{([^{}]*+)\}")
_LONE_LETTER = re.compile(r"\(?([A-Z])\)?(?:\s*+[:).\-](?:\s.*)?)?", re.DOTALL)
_LIST_OF_LETTERS = re.compile(r"\(?[A-Z]\)?(?:\s*+(?:,|/|;|&|\band\b|\bor\b)\s*+\(?[A-Z]\)?)+", re.IGNORECASE)
_FIRST_LETTER = re.compile(r"[(\[{\"'*_\s]*+([A-Za-z])(?![^\W_])")


def letters_of(options: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The text of every option by its letter."""
    return {letter.strip().upper(): text for option in options for letter, text in option.items()}


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def checked_patterns(given: Any) -> tuple[re.Pattern[str], ...]:
    """The patterns of an `output_regex`: one, several or none; ValueError for what is no pattern."""
    if given is None:
        return ()
    patterns = [given] if isinstance(given, str) else given
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        raise ValueError("output_regex must be a pattern or a list of patterns")
    try:
        return tuple(_compiled(pattern) for pattern in patterns)
    except re.error as error:
        raise ValueError(f"output_regex is no regular expression: {error}") from error


def extracted_answer(
    text: str, options: Mapping[str, str], mode: ConfigGradingMode, patterns: Sequence[re.Pattern[str]] = ()
) -> str | None:
    """The letter that `text` chooses among `options`; None if it chooses none."""
    for pattern in patterns:
        letter = _by_pattern(text, pattern, options)
        if letter is not None:
            return letter
    if mode == "strict_single_letter_boxed":
        return _in_box(text, options, lenient=False)
    if mode == "lenient_boxed":
        return _in_box(text, options, lenient=True)
    return _after_colon(text, options, rejects_lists=mode == "lenient_answer_colon_md")


def _by_pattern(text: str, pattern: re.Pattern[str], options: Mapping[str, str]) -> str | None:
    matches = deque(pattern.finditer(text[-_SEARCHED_CHARACTERS:]), maxlen=1)
    if not matches:
        return None
    last = matches[0]
    found = next((group for group in last.groups() if group is not None), last[0]).strip()
    return _letter(found, options) or _by_text(found, options)


def _in_box(text: str, options: Mapping[str, str], *, lenient: bool) -> str | None:
    box = grading.boxed(text)
    if box is None:
        return None
    content = _TEXT_COMMAND.sub(r"\1", box).strip()
    return _letter(content, options) or (_by_text(content, options) if lenient else None)


def _letter(content: str, options: Mapping[str, str]) -> str | None:
    found = _LONE_LETTER.fullmatch(content.strip())
    return found[1] if found and found[1] in options else None


def _by_text(content: str, options: Mapping[str, str]) -> str | None:
    """The one option whose text `content` is, or else the one whose text it holds."""
    said = grading.normalize_text(content)
    texts = {letter: grading.normalize_text(text) for letter, text in options.items()}
    equal = [letter for letter, text in texts.items() if text and text == said]
    held = equal or [letter for letter, text in texts.items() if text and text in said]
    return held[0] if len(held) == 1 else None


def _after_colon(text: str, options: Mapping[str, str], *, rejects_lists: bool) -> str | None:
    said = grading.labelled_answer(text)
    if said is None:
        return None
    content = _TEXT_COMMAND.sub(r"\1", grading.boxed(said) or said).strip()
    if rejects_lists and _LIST_OF_LETTERS.match(content):
        return None
    found = _FIRST_LETTER.match(content)
    letter = found[1].upper() if found else ""
    # A word may be one letter long too ("A gas"): only what stands alone or before a mark is a choice.
    rest = content[found.end() :].lstrip("*_`\"'") if found else ""
    if letter in options and (not rest or (rest[0] in ").:,;-]}\n " and not re.match(r"\s+[a-z]", rest))):
        return letter
    return _by_text(content, options)
