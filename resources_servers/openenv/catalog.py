# SPDX-License-Identifier: Apache-2.0
"""Make rows for the environments of OpenEnv servers, which are identified by URL."""

from typing import Any

from nemo_gym.errors import GymError, RolloutFailure
from resources_servers.openenv.app import find_url

INSTRUCTION = "Act in the environment until the episode is over, one action at a time, by calling its tools."


class NoEnvironmentUrl(GymError):
    """The id of an environment is not a URL."""


def list_environments() -> list[dict[str, str]]:
    """Return an empty list: OpenEnv's environments are running servers, and there is no registry of them."""
    return []


def make_rows(
    environment_id: str, rows: int, seed: int = 0, options: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return rows of the environment at a URL.

    `options`: a `name` for rows to use, which `make_config` maps to the URL; `arguments` for its `reset`.
    """
    options = options or {}
    _check_url(environment_id)
    return [make_row(options.get("name", environment_id), seed + number, options) for number in range(rows)]


def make_row(environment: str, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return a row."""
    row: dict[str, Any] = {
        "responses_create_params": {"input": [{"role": "system", "content": INSTRUCTION}]},
        "environment": environment,
        "seed": seed,
    }
    return {**row, "arguments": dict(options["arguments"])} if options.get("arguments") else row


def make_config(environment_id: str, options: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the server config for these rows."""
    _check_url(environment_id)
    name = (options or {}).get("name")
    return {"server": {"environments": {name: environment_id}}} if name else {}


def _check_url(environment_id: str) -> None:
    try:
        find_url(environment_id, {})
    except RolloutFailure as error:
        raise NoEnvironmentUrl(
            f"{environment_id!r} is not the URL of an OpenEnv server.\n"
            "hint: start one and give its address, such as http://127.0.0.1:8000"
        ) from error
