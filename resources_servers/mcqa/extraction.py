# SPDX-License-Identifier: Apache-2.0
r"""Find the letter that a reply chooses.

`strict_single_letter_boxed` takes the last `\boxed{}` if it holds one letter, `lenient_boxed` also if it holds the text
of exactly one option; the `answer_colon` modes look for a line `Answer: X`. A reply that names no option, or more than
one, has chosen none.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from nemo_gym import grading

GradingMode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon"]
ConfigGradingMode = Literal[
    "strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"
]

_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|mathrm|mathbf|rm)\s*+\{([^{}]*+)\}")
_LONE_LETTER = re.compile(r"\(?([A-Z])\)?(?:\s*+[:).\-](?:\s.*)?)?", re.DOTALL)
_LIST_OF_LETTERS = re.compile(r"\(?[A-Z]\)?(?:\s*+(?:,|/|;|&|\band\b|\bor\b)\s*+\(?[A-Z]\)?)+", re.IGNORECASE)
_FIRST_LETTER = re.compile(r"[(\[{\"'*_\s]*+([A-Za-z])(?![^\W_])")


def index_options(options: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the text of every option by its letter."""
    return {letter.strip().upper(): text for option in options for letter, text in option.items()}


def extract_answer(
    text: str,
    options: Mapping[str, str],
    mode: ConfigGradingMode,
    template_metadata: Mapping[str, Any] | None = None,
) -> str | None:
    """Return the letter that `text` chooses among `options`; None if it chooses none.

    The patterns of a row's own `template_metadata` come before `mode`.
    """
    for pattern in grading.compile_output_regex(template_metadata, re.IGNORECASE):
        found = grading.last_match(pattern, text)
        letter = None if found is None else _letter(found, options) or _by_text(found, options)
        if letter is not None:
            return letter
    if mode == "strict_single_letter_boxed":
        return _in_box(text, options, lenient=False)
    if mode == "lenient_boxed":
        return _in_box(text, options, lenient=True)
    return _after_colon(text, options, rejects_lists=mode == "lenient_answer_colon_md")


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
    """Return the one option whose text `content` is, or else the one whose text it holds."""
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
