# SPDX-License-Identifier: Apache-2.0
"""Question and answer as a judge sees them: found by patterns of the row or the config, and put in a template."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from nemo_gym import grading
from nemo_gym.openai_utils import NeMoGymResponseCreateParamsNonStreaming

CONFIG_FLAGS = re.MULTILINE | re.DOTALL
"""How the patterns of a config are read: their `.` matches line ends."""
ROW_FLAGS = re.MULTILINE
"""How the patterns of a row are read: each is for a line."""
_PLACEHOLDER = re.compile(r"\{(question|expected_answer|generated_answer)\}")
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
    """Replace the placeholders of a template; braces in the values, and others in the template, stay."""
    return _PLACEHOLDER.sub(lambda place: values[place[1]], template)


def find_first(patterns: Iterable["re.Pattern[str]"], text: str) -> str | None:
    """Return what the first pattern that matches finds in `text`; None if none does."""
    return next(filter(None, (grading.last_match(pattern, text) for pattern in patterns)), None)


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
