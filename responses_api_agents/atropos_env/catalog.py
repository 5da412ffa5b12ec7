# SPDX-License-Identifier: Apache-2.0
"""List the sample environments, and make rows for any class path: the library itself ships no environments."""

from typing import Any

from responses_api_agents.atropos_env.environments import list_environments as list_environments, load_class


def make_rows(environment_id: str, rows: int, seed: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return rows for the first items; `seed` has no effect, since the environment orders its items itself.

    Options: `first`, the index of the first item, and `environment_config`.
    """
    load_class(environment_id)
    first = int(options.get("first", 0))
    settings = options.get("environment_config") or {}
    return [write_row(environment_id, index, settings) for index in range(first, first + rows)]


def make_config(environment_id: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return overrides of the default config: the environment's package, if given."""
    return {"requirements": options["requirements"]} if options.get("requirements") else {}


def write_row(environment_id: str, index: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the row of an item."""
    return {
        "responses_create_params": {"input": []},  # the environment writes the prompt
        "environment": environment_id,
        **({"environment_config": settings} if settings else {}),
        "item_index": index,
    }
