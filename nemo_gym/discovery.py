# SPDX-License-Identifier: Apache-2.0
"""What config files say of themselves, for programs that list environments; `gym list` itself is `_catalog`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from nemo_gym import component_search_roots
from nemo_gym._catalog.configs import Configs, iter_server_blocks

T = TypeVar("T")


def merge_by_name(dicts: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """Merge mappings of names; where several have a name, the earliest has the say."""
    merged: dict[str, T] = {}
    for one in dicts:
        for name, value in one.items():
            merged.setdefault(name, value)
    return merged


def read_config_metadata(path: str | Path) -> tuple[str | None, str | None]:
    """Return the domain and the description in the config file `path`: of its own servers, else of those it includes.

    A file that is not there or is no mapping has neither.
    """
    configs = Configs(component_search_roots())
    blocks = [*iter_server_blocks(configs.read(Path(path))), *iter_server_blocks(configs.merge(Path(path)))]

    def find(key: str) -> str | None:
        values = (block.settings.get(key) for block in blocks)
        return next((str(value) for value in values if value not in (None, "", "???")), None)

    return find("domain"), find("description")
