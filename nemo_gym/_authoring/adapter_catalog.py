# SPDX-License-Identifier: Apache-2.0
"""Ask another system's adapter for its environments and for rows, through the `catalog.py` in its folder.

    list_environments() -> list[dict]                               the `id` and `description` of each
    make_rows(environment_id, rows, seed, options) -> list[dict]    dataset rows, determined by the seed
    make_config(environment_id, options) -> dict                    optional: config keys, as
                                                                    {"server": {...}, "agent": {...}}; an adapter
                                                                    that is an agent returns the keys directly

A catalog needs its system's library, so it runs under its server's interpreter, in a process that reads one request
and writes one reply. `make_config` is called first. If it asks for packages (the server's `requirements`) that are
missing from the virtual environment, rows wait for a second call. A GymError's message is passed on unchanged.
"""

import json
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym._servers.processes.entrypoint import import_server_module
from nemo_gym.errors import GymError

LOG = logging.getLogger(__name__)
FILE = "catalog.py"
TIMEOUT_S = 1800.0
"""Making rows may download a dataset."""

_AGENTS = "responses_api_agents."
_LAST_LINES = 10


@dataclass(frozen=True)
class ImportedRows:
    """What a catalog returns for one environment."""

    config: dict[str, dict[str, Any]]
    """What `make_config` returned."""
    rows: list[dict[str, Any]] | None
    """None if packages must be installed first."""

    @property
    def requirements(self) -> list[str]:
        """The packages the environment needs."""
        return [text for part in self.config.values() for text in part.get("requirements") or ()]


class CatalogError(GymError):
    """An adapter's catalog failed."""


class CatalogRefusal(GymError):
    """An adapter's catalog refused a request and says why, such as an unknown environment."""


@dataclass(frozen=True)
class Catalog:
    """An adapter's catalog, seen from the main process."""

    folder: Path
    python: Path
    """The interpreter of the adapter's server."""
    environment: Mapping[str, str]
    """The environment variables of its process."""

    def list_environments(self) -> list[dict[str, Any]]:
        """Return the system's environments."""
        found: list[dict[str, Any]] = self._ask("_list_environments", {})
        return found

    def make_rows(
        self, environment_id: str, *, rows: int, seed: int, options: dict[str, Any], built_with: list[str]
    ) -> ImportedRows:
        """Return rows of an environment; `built_with` lists the packages already installed for it."""
        request = {"environment_id": environment_id, "rows": rows, "seed": seed, "options": options}
        return ImportedRows(**self._ask("_make_rows", {**request, "built_with": built_with}))

    def _ask(self, function: str, arguments: dict[str, Any]) -> Any:
        file = self.folder / FILE
        request = {"folder": str(self.folder), "function": function, "arguments": arguments}
        try:
            done = subprocess.run(
                [self.python, "-m", __name__],
                # Sets must iterate in the same order in every process, since libraries draw from them.
                env={**self.environment, "PYTHONHASHSEED": "0"},
                input=json.dumps(request),
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise CatalogError(
                f"{file} gave no answer within {TIMEOUT_S:g} s.\n"
                "hint: ask for fewer rows; loading data from a hub needs a network"
            ) from error
        LOG.debug("%s wrote:\n%s", file, done.stderr)
        try:
            reply = json.loads(done.stdout)
        except ValueError as error:
            last = "\n".join(done.stderr.splitlines()[-_LAST_LINES:])
            raise CatalogError(
                f"{file} ended without an answer, exit code {done.returncode}. Its last lines:\n{last}\n"
                "hint: `--verbose` shows its whole output"
            ) from error
        if "refusal" in reply:
            raise CatalogRefusal(reply["refusal"])
        if "failure" in reply:
            raise CatalogError(reply["failure"])
        return reply["value"]


# --- in the process of the catalog ----------------------------------------------------------------------------------


def _list_environments(catalog: Any) -> list[dict[str, Any]]:
    return [{"id": str(one["id"]), "description": str(one["description"])} for one in catalog.list_environments()]


def _make_rows(
    catalog: Any, environment_id: str, rows: int, seed: int, options: dict[str, Any], built_with: list[str]
) -> dict[str, Any]:
    made = catalog.make_config(environment_id, options) if hasattr(catalog, "make_config") else {}
    config = {"server": made} if catalog.__name__.startswith(_AGENTS) else made
    if unknown := sorted(set(config) - {"server", "agent"}):
        raise GymError(f"make_config of {catalog.__name__} returned {unknown}; allowed: 'server' and 'agent'")
    is_built = set(ImportedRows(config, None).requirements) <= set(built_with)
    return {"config": config, "rows": catalog.make_rows(environment_id, rows, seed, options) if is_built else None}


def main() -> None:
    """Answer the request on stdin. Redirect what libraries print to stderr, so that stdout has only the reply."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    folder = Path(request["folder"])
    try:
        catalog = import_server_module(folder / FILE, f"{folder.parent.name}.{folder.name}.{Path(FILE).stem}")
        reply = {"value": globals()[request["function"]](catalog, **request["arguments"])}
        text = json.dumps(reply, ensure_ascii=False, allow_nan=False)
    except GymError as error:
        text = json.dumps({"refusal": str(error)})
    except Exception as error:  # a library may raise anything
        traceback.print_exc()
        message = f"{folder / FILE} failed: {type(error).__name__}: {error}\nhint: `--verbose` shows its traceback"
        text = json.dumps({"failure": message})
    with replies:
        replies.write(text)


if __name__ == "__main__":
    main()
