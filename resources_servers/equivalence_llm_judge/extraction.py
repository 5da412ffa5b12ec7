# SPDX-License-Identifier: Apache-2.0
"""Question and answer as a judge sees them: found by patterns of the row or the config, and put in a template."""

import re
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

# A pattern that a row brings along may be slow on a long text; answers stand at the end.
_SEARCHED_CHARACTERS = 20_000
_PLACEHOLDER = re.compile(r"\{(question|expected_answer|generated_answer)\}")
PLACEHOLDERS = ("question", "expected_answer", "generated_answer")


@lru_cache(maxsize=4096)
def compiled(pattern: str, *, spans_lines: bool = True) -> "re.Pattern[str]":
    """A pattern, whose `.` matches line ends if it `spans_lines`; ValueError for what is none."""
    try:
        return re.compile(pattern, re.MULTILINE | (re.DOTALL if spans_lines else re.NOFLAG))
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error


def patterns_of(output_regex: Any) -> tuple["re.Pattern[str]", ...]:
    """The patterns of an `output_regex`: one, several or none, each for a line; ValueError for what is none."""
    if output_regex is None:
        return ()
    given = [output_regex] if isinstance(output_regex, str) else output_regex
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise ValueError("output_regex must be a pattern or a list of patterns")
    return tuple(compiled(one, spans_lines=False) for one in given)


def last_match(patterns: Sequence["re.Pattern[str]"], text: str) -> str | None:
    """The first group, or else all, of the last match of the first pattern that matches."""
    for pattern in patterns:
        matches = deque(pattern.finditer(text[-_SEARCHED_CHARACTERS:]), maxlen=1)
        if matches:
            found = next((group for group in matches[0].groups() if group is not None), matches[0][0]).strip()
            if found:
                return found
    return None


def filled(template: str, values: Mapping[str, str]) -> str:
    """The template with its placeholders replaced; braces in the values, and others in the template, stay."""
    return _PLACEHOLDER.sub(lambda place: values[place[1]], template)
