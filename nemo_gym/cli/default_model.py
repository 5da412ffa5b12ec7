# SPDX-License-Identifier: Apache-2.0
"""Choose a model server when a config refers to `policy_model` and nothing defines it.

By default it is `local_model`, which needs no key; with an endpoint (`policy_base_url` and the like) it is
`openai_model`. A model that any config file, `env.yaml` or the command line defines is left alone.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from nemo_gym import component_search_roots
from nemo_gym._authoring.config_catalog import Configs
from nemo_gym._config.config_files import find_first
from nemo_gym._config.config_parser import examine
from nemo_gym._config.overrides import override_token
from nemo_gym._config.server_names import OLDER_MODEL
from nemo_gym.cli import render
from nemo_gym.cli.settings import split_off
from nemo_gym.global_config import (
    CONFIG_PATHS_KEY_NAME,
    POLICY_API_KEY_KEY_NAME,
    POLICY_BASE_URL_KEY_NAME,
    POLICY_MODEL_KEY_NAME,
    POLICY_MODEL_NAME_KEY_NAME,
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
)

LOCAL = "local_model"
ENDPOINT = "openai_model"
_ENGINE = "xllamacpp"
ENDPOINT_KEYS = (POLICY_BASE_URL_KEY_NAME, POLICY_MODEL_NAME_KEY_NAME, POLICY_API_KEY_KEY_NAME)


def with_default_model(overrides: list[str]) -> list[str]:
    """Add the config of a model server to `overrides` if one is needed and none is defined, and print a note."""
    if _is_plainly_defined(overrides):
        return overrides
    _, resolved = examine(
        GlobalConfigDictParser().sources(GlobalConfigDictParserConfig(overrides=overrides, offline=True))
    )
    if resolved is None:
        return overrides  # the config cannot be resolved; parsing it reports why
    given = resolved.servers.values.plain
    chosen = choose(given)
    if chosen is None or find_first(find_model_config(chosen), component_search_roots()) is None:
        return overrides  # in a tree without our model servers, parsing reports who refers to a missing one
    render.note(_explain_choice(chosen, given))
    _, rest = split_off(overrides, CONFIG_PATHS_KEY_NAME)
    # First, so that the other files override it.
    paths = [find_model_config(chosen), *resolved.config[CONFIG_PATHS_KEY_NAME]]
    return [override_token(CONFIG_PATHS_KEY_NAME, paths), *rest]


def find_model_config(model_server: str) -> str:
    """Return the config file of a model server."""
    return f"responses_api_models/{model_server}/configs/{model_server}.yaml"


def choose(config: dict[str, Any]) -> str | None:
    """Return the model server that `config` lacks; None if it defines one or needs none."""
    block = config.get(POLICY_MODEL_KEY_NAME)
    if block is not None:
        if _only_sets_local_model(block):
            return LOCAL
        return None
    asked = find_models(config)
    if POLICY_MODEL_KEY_NAME not in asked and (OLDER_MODEL in config or OLDER_MODEL not in asked):
        return None
    if any(config.get(key) for key in ENDPOINT_KEYS):
        return ENDPOINT
    return LOCAL


def _is_plainly_defined(overrides: list[str]) -> bool:
    """Return whether a file on the command line, or one it includes, defines the model.

    This is fast, because it does not resolve the whole config.
    """
    paths = split_off(overrides, CONFIG_PATHS_KEY_NAME)[0].get(CONFIG_PATHS_KEY_NAME)
    roots = component_search_roots()
    files = (find_first(path, roots) for path in (paths if isinstance(paths, list) else ()))
    configs = Configs(roots)
    blocks = (configs.merge(file).get(POLICY_MODEL_KEY_NAME) for file in files if file is not None)
    return any(isinstance(block, dict) and not _only_sets_local_model(block) for block in blocks)


def _only_sets_local_model(block: Any) -> bool:
    """Return whether `block` only adds settings to the local model, such as `seed: 1`."""
    models = block.get("responses_api_models") if isinstance(block, dict) else None
    return isinstance(models, dict) and list(models) == [LOCAL] and "entrypoint" not in (models[LOCAL] or {})


def find_models(block: Any) -> set[str]:
    """Return the model servers that a block refers to, at any depth."""
    if (
        isinstance(block, Mapping)
        and block.get("type") == "responses_api_models"
        and isinstance(block.get("name"), str)
    ):
        return {block["name"]}
    if isinstance(block, Mapping):
        block = list(block.values())
    if not isinstance(block, list):
        return set()
    return set[str]().union(*map(find_models, block))


def _explain_choice(chosen: str, config: dict[str, Any]) -> str:
    if chosen == ENDPOINT:
        given = ", ".join(key for key in ENDPOINT_KEYS if config.get(key))
        return f"no model server is configured: using {ENDPOINT} with {given}. For another one: --model-type NAME"
    text = (
        f"no model is configured: using {LOCAL}, a small one on this machine's CPU. For another one: "
        f"--model-type {ENDPOINT} --model NAME --model-url URL --model-api-key KEY, or the same in env.yaml"
    )
    return "\n".join([text, *explain_missing_engine()])


def explain_missing_engine() -> list[str]:
    """Return lines that say how the local model runs without its engine and how to install it, if it is missing."""
    if find_spec(_ENGINE) is not None:
        return []
    return [
        f"{LOCAL} needs {_ENGINE}, which is not installed here, so it runs in its own virtual environment, built once.",
        "hint: pip install 'nemo-gym[local]' installs it here, which starts faster",
    ]
