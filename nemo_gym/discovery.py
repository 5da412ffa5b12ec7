# SPDX-License-Identifier: Apache-2.0
"""Read the descriptions in config files, for programs that list environments; `gym list` itself is in `_authoring`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from nemo_gym import component_search_roots
from nemo_gym._authoring.config_catalog import Configs, iter_server_blocks

T = TypeVar("T")


def merge_by_name(dicts: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """Merge mappings keyed by name; if several have a name, the first one wins."""
    merged: dict[str, T] = {}
    for one in dicts:
        for name, value in one.items():
            merged.setdefault(name, value)
    return merged


def read_config_metadata(path: str | Path) -> tuple[str | None, str | None]:
    """Return the domain and description in the config file `path`: those of its own servers, else of those it includes.

    Both are None for a file that does not exist or is not a mapping.
    """
    configs = Configs(component_search_roots())
    blocks = [*iter_server_blocks(configs.read(Path(path))), *iter_server_blocks(configs.merge(Path(path)))]

    def find(key: str) -> str | None:
        values = (block.settings.get(key) for block in blocks)
        return next((str(value) for value in values if value not in (None, "", "???")), None)

    return find("domain"), find("description")
