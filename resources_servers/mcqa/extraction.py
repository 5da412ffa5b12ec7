# SPDX-License-Identifier: Apache-2.0
r"""Find the letter that a reply chooses.

`strict_single_letter_boxed` takes the last `\boxed{}` if it holds one letter or begins with a label such as `A:`,
`lenient_boxed` also if it holds the text of exactly one option. `lenient_answer_colon` takes the first `Answer:` and
wants nothing else on its line; `lenient_answer_colon_md` takes the last one that names a letter, in Markdown and prose.
"""

import logging
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from nemo_gym import grading

GradingMode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon"]
ConfigGradingMode = Literal[
    "strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"
]

# A row's own pattern may be slow on a long text; answers come at the end.
SEARCHED_CHARACTERS = 20_000

_LONE_LETTER = re.compile(r"[^A-Za-z]*+([A-Z])[^A-Za-z]*+")
_LABEL = re.compile(r"\s*+([A-Z])\s*+[:).\-]")
_NEGATION = re.compile(r"\b(?:not|neither|nor|except)\b|n't\b")
_COLON = re.compile(r"answer\s*+:\s*(.+)", re.IGNORECASE)
_COLON_IN_MARKDOWN = re.compile(r"[*_]{0,2}Answer[*_]{0,2}\s*+:[*_\s]{0,2}(.+)", re.IGNORECASE)
_EDGES = "*_` .,;:\t\r\n\f\v"
_NEXT_TO_ANOTHER = re.compile(
    r"(?<![A-Za-z0-9])([A-Za-z])(?=[)\]]*+(?:[\s/|&,;]|\bor\b|\band\b)++[(\[]*+([A-Za-z])(?![A-Za-z0-9]))",
    re.IGNORECASE,
)
_LEADING_LETTER = re.compile(r"([A-Za-z])(?![A-Za-z0-9])")
_STANDALONE_LETTER = re.compile(r"(?<![A-Za-z0-9])[A-Z](?![A-Za-z0-9])")
_LETTERS_OF_OTHER_SCRIPTS = str.maketrans(
    {
        other: f" {letter}"
        for others in ("\u0623\u0628\u062c\u062f", "\u0985\u09ac\u09a1\u09a2", "\uff21\uff22\uff23\uff24")
        for other, letter in zip(others, "ABCD", strict=True)
    }
)

_log = logging.getLogger(__name__)


def index_options(options: Sequence[Mapping[str, str | None]]) -> dict[str, str]:
    """Return the text of every option by its letter; an option without a text is not there."""
    return {
        key.upper(): text
        for option in options
        for key, text in option.items()
        if text is not None and len(key) == 1 and key.isalpha()
    }


def extract_answer(
    text: str,
    options: Mapping[str, str],
    mode: ConfigGradingMode,
    template_metadata: Mapping[str, Any] | None = None,
) -> str | None:
    """Return the letter that `text` chooses among `options`; None if it chooses none.

    The patterns of a row's own `template_metadata` come before `mode`, and may find a letter that no option has.
    """
    metadata = template_metadata or {}
    letter = _match_output_regex(text, options, metadata.get("output_regex") or [])
    if letter is not None:
        return letter
    if mode == "strict_single_letter_boxed":
        return _read_box(text, options)
    if mode == "lenient_boxed":
        return _read_box(text, options) or _find_option_in_box(text, options)
    if mode == "lenient_answer_colon":
        return _read_first_colon(text, options)
    return _read_last_colon(text, options, metadata.get("answer_prefix") or "")


def _match_output_regex(text: str, options: Mapping[str, str], patterns: str | Sequence[str]) -> str | None:
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        try:
            compiled = grading.compile_pattern(pattern, re.IGNORECASE)
        except ValueError as error:
            _log.warning("output_regex is skipped, and the grading mode decides: %s", error)
            continue
        matches = list(compiled.finditer(text[-SEARCHED_CHARACTERS:]))
        if not matches:
            continue
        groups = matches[-1].groups() or (matches[-1][0],)
        found = _unify_letters(next(filter(None, groups), "").strip()).strip().upper()
        if len(found) == 1 and found.isalpha():
            return found
        letter = _find_equal_option(found, options)
        if letter is not None:
            return letter
    return None


def _read_box(text: str, options: Mapping[str, str]) -> str | None:
    content = _peel_last_box(text)
    lone = _LONE_LETTER.fullmatch(content)
    label = _LABEL.match(content)
    if lone:
        letter = lone[1]
    elif label and not _is_other_letter(content[label.end() :], label[1], options):
        letter = label[1]
    else:
        return None
    return letter if letter in options else None


def _peel_last_box(text: str) -> str:
    return grading.peel_text_commands(next(grading.boxes_from_last(text), None) or "")


def _is_other_letter(rest: str, letter: str, options: Mapping[str, str]) -> bool:
    """Return whether a label is followed by nothing but the letter of another option: `B: A` chooses neither."""
    other = rest.strip(f"{_EDGES}()[]$").upper()
    return other in options and other != letter


def _find_option_in_box(text: str, options: Mapping[str, str]) -> str | None:
    said = _normalize(_peel_last_box(text))
    texts = {letter: _normalize(option) for letter, option in options.items()}
    held = [letter for letter, option in texts.items() if option and option in said]
    # "not oxygen" names an option to say that it is wrong.
    if len(held) != 1 or _NEGATION.search(said.replace(texts[held[0]], " ")):
        return None
    return held[0]


def _read_first_colon(text: str, options: Mapping[str, str]) -> str | None:
    found = _COLON.search(text)
    if found is None:
        return None
    said = grading.peel_text_commands(found[1])
    if len(said) == 1 and said.upper() in options:
        return said.upper()
    return _find_equal_option(said, options)


def _read_last_colon(text: str, options: Mapping[str, str], prefix: str) -> str | None:
    unified = unicodedata.normalize("NFKC", text)
    found = list(_COLON_IN_MARKDOWN.finditer(unified))
    if prefix:
        literal = re.escape(unicodedata.normalize("NFKC", prefix))
        found.extend(re.finditer(rf"{literal}\s*(.+)", unified, re.IGNORECASE))
    for one in sorted(found, key=lambda match: match.start(), reverse=True):
        letter = _read_payload(_unify_letters(one[1]).strip(_EDGES), options)
        if letter is not None:
            return letter
    return _read_box(text, options) if prefix else None


def _read_payload(said: str, options: Mapping[str, str]) -> str | None:
    for pair in _NEXT_TO_ANOTHER.finditer(said):
        first = pair[1].upper()
        second = pair[2].upper()
        if first != second and first in options and second in options:
            return None
    leading = _LEADING_LETTER.match(said)
    standalone = _STANDALONE_LETTER.findall(said)
    if len(said) == 1:
        letter = said
    elif leading:
        letter = leading[1]
    elif standalone:
        letter = standalone[-1]
    else:
        return None
    return letter.upper() if letter.upper() in options else None


def _unify_letters(text: str) -> str:
    return unicodedata.normalize("NFKC", text).translate(_LETTERS_OF_OTHER_SCRIPTS)


def _find_equal_option(said: str, options: Mapping[str, str]) -> str | None:
    wanted = _normalize(said)
    return next((letter for letter, text in options.items() if wanted and _normalize(text) == wanted), None)


def _normalize(text: str) -> str:
    return " ".join(text.lower().split())
