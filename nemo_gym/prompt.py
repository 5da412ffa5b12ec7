# SPDX-License-Identifier: Apache-2.0
"""Prompt files: YAML with a `user` and an optional `system` template that turn the fields of a row into messages.

`{field}` stands for a top-level key of the row; literal braces are doubled. Values are inserted unchanged: braces
inside them mean nothing.
"""

import functools
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, Field, ValidationError

from nemo_gym import _resolve_under_cwd_or_install, component_search_roots
from nemo_gym._config.problems import explain
from nemo_gym._util.moved_names import find_names
from nemo_gym._util.row_keys import PROMPT_CONFIG_USED_KEY_NAME, RESPONSES_CREATE_PARAMS_KEY_NAME
from nemo_gym.errors import ConfigError, ConfigPathNotFoundError

LOG = logging.getLogger(__name__)
_SHOWN = 20


class PromptError(ConfigError, ValueError):
    """A prompt cannot be used, or does not fit the rows it is used for."""


class PromptFieldError(PromptError, KeyError):
    """A prompt asks for a field that a row does not have."""

    __str__ = Exception.__str__  # a KeyError shows the repr of its message


class PromptConfig(BaseModel):
    """The templates of one prompt file."""

    user: str = Field(description="Template of the user message.")
    system: str | None = Field(default=None, description="Template of the system message; none is sent without it.")


@functools.lru_cache(maxsize=256)
def load_prompt_config(path: str | Path) -> PromptConfig:
    """Load a prompt from the YAML file `path`, looked up in the search roots; read once per process."""
    file = _resolve_under_cwd_or_install(path)
    if not file.is_file():
        roots = [Path()] if Path(path).is_absolute() else component_search_roots()
        places = "\n".join(f"  - {root / path}" for root in roots)
        raise ConfigPathNotFoundError(
            f"prompt file {str(path)!r} was not found.\n"
            f"looked for:\n{places}\n"
            f"hint: give an absolute path, or one relative to the current folder or to the install folder"
        )
    return _parse(file)


def fill_prompt(prompt_config: PromptConfig, row: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the messages for `row`: a system message if there is a template for it, and a user message."""
    templates = {"system": prompt_config.system, "user": prompt_config.user}
    return [
        {"role": role, "content": _fill(template, row, role)}
        for role, template in templates.items()
        if template is not None
    ]


def apply_prompt_to_row(
    prompt_config: PromptConfig | dict[str, Any],
    row: dict[str, Any] | PromptConfig,
    prompt_config_path: str | Path | None = None,
) -> dict[str, Any]:
    """Return a copy of `row` whose `responses_create_params.input` is the filled prompt.

    The other create params stay. With `prompt_config_path`, the row also records which prompt was used. Raise
    PromptError if the row already has an input. The two arguments may come in either order.
    """
    prompt = prompt_config
    if isinstance(row, PromptConfig):
        prompt, row = row, prompt
    if not isinstance(prompt, PromptConfig) or not isinstance(row, dict):
        raise TypeError(f"expected a PromptConfig and a row, not {type(prompt).__name__} and {type(row).__name__}")
    if _has_input(row):
        raise PromptError(_explain_input_conflict("the row already has"))
    create_params = {**(row.get(RESPONSES_CREATE_PARAMS_KEY_NAME) or {}), "input": fill_prompt(prompt, row)}
    filled = {**row, RESPONSES_CREATE_PARAMS_KEY_NAME: create_params}
    if prompt_config_path is not None:
        filled[PROMPT_CONFIG_USED_KEY_NAME] = str(prompt_config_path)
    return filled


def validate_prompt_compatibility(rows: Iterable[Mapping[str, Any]], prompt_config: PromptConfig | None = None) -> None:
    """Raise PromptError listing all rows that already have an input or, given a prompt, lack one of its fields."""
    conflicts: list[int] = []
    for index, row in enumerate(rows):
        if _has_input(row):
            conflicts.append(index)
        elif prompt_config is not None:
            try:
                fill_prompt(prompt_config, row)
            except PromptError as error:
                raise PromptError(f"row {index}: {error}") from error
    if conflicts:
        shown = ", ".join(map(str, conflicts[:_SHOWN])) + (", …" if len(conflicts) > _SHOWN else "")
        raise PromptError(_explain_input_conflict(f"{len(conflicts)} rows (indices {shown}) already have"))


def materialize_prompts(
    input_jsonl: str | Path, prompt_config: str | Path | PromptConfig, output_jsonl: str | Path
) -> int:
    """Fill a prompt into every row of a JSONL file and return the number of rows.

    Raise ValueError, and write nothing, if a row already has an input or lacks a field of the prompt.
    """
    from nemo_gym._data.dataset_rows import render_rows

    if isinstance(prompt_config, PromptConfig):
        path = None
        prompt = prompt_config
    else:
        path = prompt_config
        prompt = load_prompt_config(path)
    source = _resolve_under_cwd_or_install(input_jsonl)
    return render_rows(source, Path(output_jsonl), lambda row: apply_prompt_to_row(prompt, row, path))


def _parse(file: Path) -> PromptConfig:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        prompt = PromptConfig.model_validate(content)
    except (yaml.YAMLError, UnicodeDecodeError, ValidationError) as error:
        wrong = explain(error, content) if isinstance(error, ValidationError) else {}
        reason = "; ".join(f"{'.'.join(path)} {text}".strip() for path, text in wrong.items()) or error
        raise PromptError(
            f"{file} is not a prompt file: {reason}\n"
            f"hint: write YAML with a text under `user` and, optionally, one under `system`"
        ) from error
    unknown = sorted(map(str, content.keys() - PromptConfig.model_fields.keys()))
    if unknown:
        LOG.warning("%s: unknown keys are ignored: %s", file, ", ".join(unknown))
    return prompt


def _fill(template: str, row: Mapping[str, Any], role: str) -> str:
    try:
        return template.format_map(row)
    except (KeyError, AttributeError, IndexError, TypeError) as error:
        missing = error.args[0] if error.args else error
        # One line, because callers match it as one.
        raise PromptFieldError(
            f"the {role} prompt asks for {missing!r}, which the row does not have; available fields: "
            f"{', '.join(map(str, row)) or 'none'} (literal braces are doubled: '{{{{' and '}}}}')"
        ) from error
    except ValueError as error:
        raise PromptError(
            f"the {role} prompt is not a valid template: {error}\nhint: literal braces are doubled: '{{{{' and '}}}}'"
        ) from error


def _has_input(row: Mapping[str, Any]) -> bool:
    return bool((row.get(RESPONSES_CREATE_PARAMS_KEY_NAME) or {}).get("input"))


def _explain_input_conflict(who: str) -> str:
    return (
        f"{who} an input under `{RESPONSES_CREATE_PARAMS_KEY_NAME}`, which a prompt would replace.\n"
        f"hint: use rows without `{RESPONSES_CREATE_PARAMS_KEY_NAME}.input`, or leave the prompt out"
    )


if not TYPE_CHECKING:
    __getattr__ = find_names(__name__)
