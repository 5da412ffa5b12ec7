# SPDX-License-Identifier: Apache-2.0
"""List the installed library's toy-text environments, and make rows for these or any other id."""

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

from nemo_gym.errors import GymError
from resources_servers.gymnasium_text.known_environments import find_known, make_row

_FIELDS = ("env_kwargs", "actions", "observation", "rules")
_DEFAULT_MAX_STEPS = 100


def list_environments() -> list[dict[str, str]]:
    """Return the toy-text environments; all of them run offline."""
    import gymnasium

    found = sorted(name for name, spec in gymnasium.registry.items() if "toy_text" in str(spec.entry_point))
    return [{"id": name, "description": find_known(name).rules.format(env_id=name).strip()} for name in found]


def make_rows(environment_id: str, rows: int, seed: int, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row per seed; the options are `env_kwargs`, `actions`, `observation` and `rules`."""
    _find_spec(environment_id)
    if unknown := sorted(set(options) - set(_FIELDS)):
        raise GymError(f"there is no option {', '.join(map(repr, unknown))}.\nhint: options: {', '.join(_FIELDS)}")
    return [make_row(environment_id, seed + number, **options) for number in range(rows)]


def make_config(environment_id: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config that lets the agent take as many steps as the environment allows."""
    return {"agent": {"max_steps": _find_spec(environment_id).max_episode_steps or _DEFAULT_MAX_STEPS}}


def _find_spec(environment_id: str) -> Any:
    """Return the library's spec of an environment; `module:id` is registered by a module."""
    import gymnasium

    module, _, name = environment_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise GymError(
                f"the module of environment {environment_id!r} cannot be imported: {error}\n"
                "hint: add its package to `requirements` in the server's config"
            ) from error
    if name in gymnasium.registry:
        return gymnasium.registry[name]
    close = " or ".join(map(repr, difflib.get_close_matches(name, gymnasium.registry, 3, 0.5)))
    raise GymError(
        f"gymnasium {gymnasium.__version__} has no environment {name!r}.\n"
        f"hint: {f'did you mean {close}?' if close else 'is its package installed?'}"
    )
