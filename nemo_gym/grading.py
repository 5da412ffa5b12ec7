# SPDX-License-Identifier: Apache-2.0
"""What nearly every verifier does before comparing: get the assistant's text, drop the thinking, find the answer.

All functions accept anything a model may write, return None (or an empty result) if there is nothing to find, and run
in linear time. Deciding whether an answer is right is left to the environment.
"""

import json
import math
import re
import string
import unicodedata
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import orjson
from pydantic import AfterValidator

from nemo_gym._wire.schema.wire_model import get_field

_THINK_TAG = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
# Escaped characters are consumed as pairs, so that `\{` and `\}` do not count as braces.
_BOX_TOKEN = re.compile(r"\\(?:boxed|fbox)\s*+\{|\\.|[{}]", re.DOTALL)
_LITERAL_BOX_TOKEN = re.compile(r"\\boxed\{|[{}]")
_TEXT_COMMAND = "\\text{"
_FENCE = re.compile(r"[ \t]*+(`{3,}|~{3,})[ \t]*+([^\n]*)")
_NUMBER = re.compile(
    r"(?<![\w.])[-+\u2212]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])|[0-9]++)(?:\.[0-9]++)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?"
)
_MAX_INT_DIGITS = 4000
_EDGES = string.whitespace + ".,;:!?\"'`*_"
# A row's own pattern may be slow on a long text; answers come at the end.
_SEARCHED_CHARACTERS = 20_000


class FunctionCall(NamedTuple):
    """A tool call that the model made."""

    name: str
    arguments: dict[str, Any] | None
    """None if the arguments are not a JSON object; `error` says why."""
    error: str | None
    call_id: str


def assistant_text(response: Any, between_parts: str = "") -> str:
    """Return all text the assistant wrote in a response (or its dict), with newlines between messages."""
    return "\n".join(_list_message_texts(response, between_parts))


def joined_text(response: Any) -> str:
    """Return all text the assistant wrote with nothing between messages, as the OpenAI SDK's `output_text` does."""
    return "".join(_list_message_texts(response))


def answer_text(response: Any) -> str:
    """Return `joined_text` without its thinking: the text in which verifiers look for an answer."""
    return strip_thinking(joined_text(response))


def last_assistant_text(response: Any) -> str:
    """Return the text of the assistant's last message; empty if there is none."""
    return next(reversed(list(_list_message_texts(response))), "")


def last_item_text(response: Any) -> str:
    """Return the first part of the very last output item; empty if that item is a tool call or reasoning."""
    items: list[Any] = get_field(response, "output") or []
    content = get_field(items[-1], "content") if items else None
    if not content or get_field(items[-1], "type") == "reasoning":
        return ""
    return content if isinstance(content, str) else str(get_field(content[0], "text") or "")


def function_calls(response: Any) -> list[FunctionCall]:
    """Return the tool calls of a response in order, with their arguments parsed."""
    return [
        FunctionCall(
            str(get_field(item, "name")),
            *_parse_arguments(get_field(item, "arguments")),
            str(get_field(item, "call_id") or ""),
        )
        for item in get_field(response, "output") or ()
        if get_field(item, "type") == "function_call"
    ]


def strip_thinking(text: str) -> str:
    """Return `text` without `<think>…</think>` and `<thinking>…</thinking>`.

    Thinking that is never closed has no answer after it, so everything to the end is dropped. A closing tag without an
    opening one ends thinking that began in the prompt, so everything before it is dropped too.
    """
    kept: list[str] = []
    start = 0
    thinking = False
    for tag in _THINK_TAG.finditer(text):
        if tag[1]:
            if not thinking:
                kept.clear()
            start = tag.end()
            thinking = False
        elif not thinking:
            kept.append(text[start : tag.start()])
            thinking = True
    if not thinking:
        kept.append(text[start:])
    return "".join(kept).strip()


def boxed(text: str) -> str | None:
    r"""Return the content of the last complete `\boxed{…}` or `\fbox{…}`."""
    return next(reversed(all_boxed(text)), None)


def all_boxed(text: str) -> list[str]:
    r"""Return the contents of all complete `\boxed{…}` and `\fbox{…}`, in order; of nested ones, the innermost."""
    spans: list[tuple[int, int]] = []
    opened: list[int] = []  # where the content of each open box begins; -1 for any other brace
    for token in _BOX_TOKEN.finditer(text):
        symbol = token[0]
        if symbol == "{":
            opened.append(-1)
        elif symbol.endswith("{") and len(symbol) > 2:
            opened.append(token.end())
        elif symbol == "}" and opened:
            start = opened.pop()
            holds_a_box = spans and spans[-1][0] > start
            if start >= 0 and not holds_a_box:
                spans.append((start, token.start()))
    return [text[start:end].strip() for start, end in spans]


def boxes_from_last(text: str) -> Iterator[str | None]:
    r"""Yield the content of every `\boxed{` from the last to the first; None for one that is never closed.

    Unlike `all_boxed`, this takes the command and every brace literally: no `\fbox`, no space before the brace, and
    `\{` is a brace too. NeMo Gym's graders read boxes this way.
    """
    boxes: list[tuple[int, int | None]] = []
    opened: list[int] = []  # for each open brace, the number of its box; -1 for any other brace
    for token in _LITERAL_BOX_TOKEN.finditer(text):
        if token[0] == "{":
            opened.append(-1)
        elif token[0] != "}":
            opened.append(len(boxes))
            boxes.append((token.end(), None))
        elif opened:
            number = opened.pop()
            if number >= 0:
                boxes[number] = (boxes[number][0], token.start())
    for start, end in reversed(boxes):
        yield None if end is None else text[start:end]


def last_box(text: str) -> str | None:
    r"""Return the content of the very last `\boxed{`; None if it is blank or never closed, whatever comes before."""
    return (next(boxes_from_last(text), None) or "").strip() or None


def peel_text_commands(text: str) -> str:
    r"""Return `text` stripped and without the `\text{…}` around all of it, however many times it is wrapped."""
    stripped = text.strip()
    start = 0
    end = len(stripped)
    # Bounds instead of slices: a reply may nest a hundred thousand of them.
    while stripped.startswith(_TEXT_COMMAND, start, end) and stripped.endswith("}", start + len(_TEXT_COMMAND), end):
        start += len(_TEXT_COMMAND)
        end -= 1
        while start < end and stripped[start].isspace():
            start += 1
        while start < end and stripped[end - 1].isspace():
            end -= 1
    return stripped[start:end]


def labelled_answer(text: str, label: str = "Answer") -> str | None:
    """Return what follows the last `Answer:` up to the end of the line, without the markdown around it.

    The label may be in any case, in bold, and part of a phrase (`Final answer: X`, `The answer is: X`). If nothing
    follows on its line, the next non-empty line counts.
    """
    words = r"\s++".join(map(re.escape, label.split()))
    pattern = re.compile(rf"(?<![^\W_]){words}(?![^\W_])(?:\s++is\b)?[*_ \t]*+[:\uff1a][*_]*+\s*+", re.IGNORECASE)
    end = len(text)
    for match in reversed(list(pattern.finditer(text))):
        answer = _strip_markdown(text[match.end() : end].partition("\n")[0])
        if answer:
            return answer
        end = match.start()
    return None


def tagged(text: str, tag: str) -> str | None:
    """Return the content of the last complete `<tag>…</tag>`."""
    pattern = re.compile(rf"<(/?){re.escape(tag)}\s*+>", re.IGNORECASE)
    start: int | None = None
    content: str | None = None
    for match in pattern.finditer(text):
        if not match[1]:
            start = match.end()
        elif start is not None:
            content = text[start : match.start()]
            start = None
    return content.strip() if content is not None else None


def code_block(text: str, lang: str | Sequence[str] | None = None) -> str | None:
    """Return the content of the last complete fenced block; with `lang`, the last one in (one of) those languages.

    An unclosed block was cut off, so it does not count.
    """
    if isinstance(lang, str):
        lang = [lang]
    wanted = {one.lower() for one in lang} if lang is not None else None
    last = None
    for language, content in _find_code_blocks(text):
        if wanted is None or language in wanted:
            last = content
    return last


def normalize_text(text: str) -> str:
    """Return `text` for a lenient comparison: Unicode compatibility forms unified, case folded, whitespace collapsed,
    quotes, markdown and punctuation stripped from the ends."""
    unified = text
    # Folding can create new compatibility forms and vice versa; a second pass settles both.
    for _ in range(2):
        unified = unicodedata.normalize("NFKC", unified.casefold())
    return " ".join(unified.split()).strip(_EDGES)


def last_number(text: str) -> int | float | None:
    """Return the last number in `text`, parsed as `all_numbers` does."""
    return next(reversed(all_numbers(text)), None)


def all_numbers(text: str) -> list[int | float]:
    """Return the numbers in `text`: ints if written as such, thousands separators allowed, never glued to a word."""
    written = (match[0].replace(",", "").replace("\u2212", "-") for match in _NUMBER.finditer(text))
    numbers = (int(one) if _is_short_int(one) else float(one) for one in written)
    return [number for number in numbers if isinstance(number, int) or math.isfinite(number)]


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern from a row or a config; raise ValueError if it is not a regular expression."""
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error


def compile_output_regex(template_metadata: Mapping[str, Any] | None, flags: int = 0) -> list[re.Pattern[str]]:
    """Compile the `output_regex` of a row (one pattern, several or none); raise ValueError for anything else."""
    given = (template_metadata or {}).get("output_regex")
    patterns = [] if given is None else given
    if isinstance(given, str):
        patterns = [given]
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        raise ValueError("output_regex must be a pattern or a list of patterns")
    return [compile_pattern(pattern, flags) for pattern in patterns]


def parse_json_text(value: Any) -> Any:
    """Return the value of JSON text, and anything else unchanged; raise ValueError for text that is not JSON.

    Use it as a `BeforeValidator` for row fields that some datasets store as text.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this text is not JSON: {error}") from None


def _require_output_regex(template_metadata: dict[str, Any]) -> dict[str, Any]:
    compile_output_regex(template_metadata)
    return template_metadata


TemplateMetadata = Annotated[dict[str, Any], AfterValidator(_require_output_regex)]
"""A row field whose `output_regex` says how to find the answer; patterns that do not compile are rejected."""


def last_match(pattern: re.Pattern[str], text: str) -> str | None:
    """Return the first group (or all) of the last match in the last 20,000 characters; None if there is nothing."""
    matches = deque(pattern.finditer(text[-_SEARCHED_CHARACTERS:]), maxlen=1)
    if not matches:
        return None
    return next((group for group in matches[0].groups() if group is not None), matches[0][0]).strip() or None


def _is_short_int(written: str) -> bool:
    return len(written) <= _MAX_INT_DIGITS and written.lstrip("+-").isdigit()


def _list_message_texts(response: Any, between_parts: str = "") -> Iterator[str]:
    for item in get_field(response, "output") or ():
        if get_field(item, "role") == "assistant":
            content = get_field(item, "content") or ""
            if not isinstance(content, str):
                texts = (get_field(part, "text") for part in content if get_field(part, "type") == "output_text")
                content = between_parts.join(text or "" for text in texts)
            if content:
                yield content


def _parse_arguments(raw: Any) -> tuple[dict[str, Any] | None, str | None]:
    if isinstance(raw, Mapping):
        return dict(raw), None
    if not raw or not str(raw).strip():
        return {}, None
    try:
        parsed = orjson.loads(str(raw))
    except orjson.JSONDecodeError as error:
        return None, f"not valid JSON: {error}"
    if not isinstance(parsed, dict):
        return None, f"not a JSON object but a {type(parsed).__name__}"
    return parsed, None


def _strip_markdown(answer: str) -> str:
    answer = answer.strip().strip("*").strip()
    if len(answer) > 2 and answer[0] == answer[-1] == "`":
        answer = answer[1:-1].strip()
    return answer


def _find_code_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the language (lowercase) and content of every complete block."""
    fence = ""
    language = ""
    lines = list[str]()
    for line in text.replace("\r\n", "\n").split("\n"):
        match = _FENCE.fullmatch(line)
        if not fence:
            # Text between backticks on one line is inline code, not the start of a block.
            if match and not (match[1][0] == "`" and "`" in match[2]):
                fence = match[1]
                lines = []
                language = (match[2].split() or [""])[0].lower()
        elif match and not match[2].strip() and match[1].startswith(fence):
            yield language, "\n".join(lines)
            fence = ""
        else:
            lines.append(line)
