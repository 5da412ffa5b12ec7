# SPDX-License-Identifier: Apache-2.0
"""Ask the adapter of another system what it offers, and for rows: it answers from `catalogue.py` in its folder.

    list_environments() -> list[dict]                               `id` and `description` of each
    make_rows(environment_id, rows, seed, options) -> list[dict]    rows of a dataset; the seed decides which
    make_config(environment_id, options) -> dict                    optional: keys of the config, as
                                                                    {"server": {...}, "agent": {...}}; an adapter
                                                                    that is an agent returns those of its one block

A catalogue needs the library of its system, so it runs with the interpreter of its server, as a process that reads one
request and writes one reply. `make_config` is called first. If it asks for packages (`requirements` of the server) that
the environment has not been built with, rows are left for a second call. A GymError is told as it is.
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

from nemo_gym._serving.entrypoint import import_server_module
from nemo_gym.errors import GymError

LOG = logging.getLogger(__name__)
FILE = "catalogue.py"
TIMEOUT_S = 1800.0
"""Making rows may download a dataset."""

_AGENTS = "responses_api_agents."
_LAST_LINES = 10


@dataclass(frozen=True)
class ImportedRows:
    """What a catalogue gives for one environment."""

    config: dict[str, dict[str, Any]]
    """What `make_config` returned."""
    rows: list[dict[str, Any]] | None
    """None if packages must be installed first."""

    @property
    def requirements(self) -> list[str]:
        """The packages that the environment needs."""
        return [text for part in self.config.values() for text in part.get("requirements") or ()]


class CatalogueError(GymError):
    """The catalogue of an adapter has failed."""


class CatalogueRefusal(GymError):
    """The catalogue of an adapter says why it cannot do what it is asked for, such as an unknown environment."""


@dataclass(frozen=True)
class Catalogue:
    """The catalogue of an adapter, seen from outside."""

    folder: Path
    python: Path
    """The interpreter that the adapter's server runs with."""
    environment: Mapping[str, str]
    """The variables of its process."""

    def list_environments(self) -> list[dict[str, Any]]:
        """Return what the system of the adapter offers."""
        found: list[dict[str, Any]] = self._ask("_list_environments", {})
        return found

    def make_rows(
        self, environment_id: str, *, rows: int, seed: int, options: dict[str, Any], built_with: list[str]
    ) -> ImportedRows:
        """Return rows of an environment; `built_with` are the packages that `python` has for it."""
        request = {"environment_id": environment_id, "rows": rows, "seed": seed, "options": options}
        return ImportedRows(**self._ask("_make_rows", {**request, "built_with": built_with}))

    def _ask(self, function: str, arguments: dict[str, Any]) -> Any:
        file, request = self.folder / FILE, {"folder": str(self.folder), "function": function, "arguments": arguments}
        try:
            done = subprocess.run(
                [self.python, "-m", __name__],
                # What a library draws from a set must not change from one process to the next.
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
            raise CatalogueError(
                f"{file} gave no answer within {TIMEOUT_S:g} s.\n"
                "hint: ask for fewer rows; what loads data from a hub needs a network"
            ) from error
        LOG.debug("%s wrote:\n%s", file, done.stderr)
        try:
            reply = json.loads(done.stdout)
        except ValueError as error:
            last = "\n".join(done.stderr.splitlines()[-_LAST_LINES:])
            raise CatalogueError(
                f"{file} ended without an answer, exit code {done.returncode}. Its last lines:\n{last}\n"
                "hint: `--verbose` shows all that it wrote"
            ) from error
        if "refusal" in reply:
            raise CatalogueRefusal(reply["refusal"])
        if "failure" in reply:
            raise CatalogueError(reply["failure"])
        return reply["value"]


# --- in the process of the catalogue ----------------------------------------------------------------------------------


def _list_environments(catalogue: Any) -> list[dict[str, Any]]:
    return [{"id": str(one["id"]), "description": str(one["description"])} for one in catalogue.list_environments()]


def _make_rows(
    catalogue: Any, environment_id: str, rows: int, seed: int, options: dict[str, Any], built_with: list[str]
) -> dict[str, Any]:
    made = catalogue.make_config(environment_id, options) if hasattr(catalogue, "make_config") else {}
    config = {"server": made} if catalogue.__name__.startswith(_AGENTS) else made
    if unknown := sorted(set(config) - {"server", "agent"}):
        raise GymError(f"make_config of {catalogue.__name__} returns {unknown}, but may return 'server' and 'agent'")
    given = ImportedRows(config, None)
    if set(given.requirements) <= set(built_with):
        given = ImportedRows(config, catalogue.make_rows(environment_id, rows, seed, options))
    return {"config": given.config, "rows": given.rows}


def main() -> None:
    """Answer the request on stdin. What libraries print goes to stderr, so that stdout holds the reply alone."""
    reply_to = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    folder = Path(request["folder"])
    try:
        catalogue = import_server_module(folder / FILE, f"{folder.parent.name}.{folder.name}.{Path(FILE).stem}")
        reply = {"value": globals()[request["function"]](catalogue, **request["arguments"])}
        text = json.dumps(reply, ensure_ascii=False, allow_nan=False)
    except GymError as error:
        text = json.dumps({"refusal": str(error)})
    except Exception as error:  # whatever a library may raise, on the way to a message
        traceback.print_exc()
        told = f"{folder / FILE} failed: {type(error).__name__}: {error}\nhint: `--verbose` shows its traceback"
        text = json.dumps({"failure": told})
    with reply_to:
        reply_to.write(text)


if __name__ == "__main__":
    main()
