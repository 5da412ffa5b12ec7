# SPDX-License-Identifier: Apache-2.0
"""From the overrides of a command to its settings; whatever is missing or wrong is reported at once."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ValidationError

from nemo_gym._config.overrides import parse_overrides
from nemo_gym._config.paths import KeyPath, join_path
from nemo_gym._config.validation_text import IS_MISSING, explain
from nemo_gym.cli.flags import UsageError
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig

ConfigT = TypeVar("ConfigT", bound=BaseModel)


def split_off(overrides: Sequence[str], *keys: str) -> tuple[dict[str, Any], list[str]]:
    """Return the values of a command's own `keys`, and the overrides that are left for the config."""
    own = [token for token in overrides if token.lstrip("+").partition("=")[0] in keys]
    return parse_overrides(own).values, [token for token in overrides if token not in own]


def parse_config(
    overrides: list[str], parser: type[GlobalConfigDictParser] = GlobalConfigDictParser, *, needs_model: bool = True
) -> DictConfig:
    """Parse the config of a command that starts no server; a stand-in fills the place of a model it does not need."""
    stand_in = None if needs_model else GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT
    return parser().parse(
        GlobalConfigDictParserConfig(overrides=overrides, initial_global_config_dict=stand_in, offline=True)
    )


def read_settings(kind: type[ConfigT], config: DictConfig) -> ConfigT:
    """Read the settings of a command out of a whole config."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    return validated(kind, plain)


def validated(kind: type[ConfigT], values: dict[str, Any]) -> ConfigT:
    """Validate `values` as a `kind`."""
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
