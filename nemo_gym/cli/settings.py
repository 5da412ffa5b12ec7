# SPDX-License-Identifier: Apache-2.0
"""The settings of a command, out of a whole config; what is missing or wrong is said in one go."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nemo_gym._config.overrides import parse_overrides
from nemo_gym._config.paths import KeyPath, join_path
from nemo_gym._config.validation_text import IS_MISSING, explain
from nemo_gym.cli.flags import UsageError

ConfigT = TypeVar("ConfigT", bound=BaseModel)


def split_off(overrides: Sequence[str], *keys: str) -> tuple[dict[str, Any], list[str]]:
    """The values of a command's own `keys`, and the overrides that are left for the config."""
    own = [token for token in overrides if token.lstrip("+").partition("=")[0] in keys]
    return parse_overrides(own).values, [token for token in overrides if token not in own]


def validated(kind: type[ConfigT], values: dict[str, Any]) -> ConfigT:
    """`values` as a `kind`."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UsageError(_tell(explain(error, values))) from error


def _tell(mistakes: Mapping[KeyPath, str]) -> str:
    missing = [join_path(path) for path, text in mistakes.items() if text == IS_MISSING]
    wrong = [f"{join_path(path)} {text}" if path else text for path, text in mistakes.items() if text != IS_MISSING]
    lines = []
    if missing:
        lines.append(
            f"missing required configuration: {', '.join(missing)}. Provide each via its flag (see --help) or as a "
            f"+{missing[0]}=<value> override."
        )
    if wrong:
        lines.append(f"invalid configuration: {'; '.join(wrong)}")
    return "\n".join(lines)
