# SPDX-License-Identifier: Apache-2.0
"""Question and answer as a judge sees them: found by patterns of the row or the config, and put in a template."""

import re
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from nemo_gym import grading
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming

PATTERN_FLAGS = re.MULTILINE | re.DOTALL
"""How patterns are read: `.` matches line ends."""
# A pattern may be slow on a long text; answers come at the end.
_SEARCHED_CHARACTERS = 20_000
_PLACEHOLDER = re.compile(r"\{(question|expected_answer|generated_answer)\}|\{\{|\}\}")
_HERE = Path(__file__).parent


def read_template(path: str) -> str:
    """Read a template, relative to this server or to the current folder; ValueError if it is not there or lacks a
    place for an answer."""
    found = next((place for place in (_HERE / path, Path(path)) if place.is_file()), None)
    if found is None:
        raise ValueError(f"judge_prompt_template_fpath: there is no file {path!r}")
    template = found.read_text()
    missing = [name for name in ("expected_answer", "generated_answer") if f"{{{name}}}" not in template]
    if missing:
        raise ValueError(f"{found}: the template has no place for {' and '.join(missing)}")
    return template


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders of a template, and its doubled braces by single ones; braces in the values stay."""
    return _PLACEHOLDER.sub(lambda place: values[place[1]] if place[1] else place[0][0], template)


def extract(patterns: Sequence[str], text: str) -> str:
    """Return what the last match of the first pattern that matches finds in `text`; all of `text` if none does.

    That is the first group with something in it, or else the whole match. A pattern that does not compile matches
    nothing.
    """
    for pattern in patterns:
        try:
            compiled = grading.compile_pattern(pattern, PATTERN_FLAGS)
        except ValueError:
            continue
        last = deque(compiled.finditer(text[-_SEARCHED_CHARACTERS:]), maxlen=1)
        if last:
            return next((group for group in last[0].groups() if group and group.strip()), last[0][0]).strip()
    return text


def last_answer(response: NeMoGymResponse) -> str:
    """Return the text of the last assistant message without its thinking; empty if it has none."""
    for item in reversed(response.output):
        if item.type == "message" and item.role == "assistant":
            texts = [part.text for part in item.content if part.type == "output_text"]
            return grading.strip_thinking("\n".join(texts))
    return ""


def last_user_text(params: NeMoGymResponseCreateParamsNonStreaming) -> str:
    """Return the text of the last user message; empty if there is none."""
    if isinstance(params.input, str):
        return params.input
    for item in reversed(params.input):
        message = item if isinstance(item, dict) else item.model_dump()
        if message.get("role") == "user":
            content = message.get("content") or ""
            return content if isinstance(content, str) else "\n".join(part.get("text") or "" for part in content)
    return ""
