# SPDX-License-Identifier: Apache-2.0
"""The rows of a config's datasets in one file: those of one type, each row with the agent that it is for."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym._util.jsonl import read_rows, write_rows
from nemo_gym.errors import ConfigError


@dataclass(frozen=True)
class SplitDataset:
    """One dataset of an agent."""

    agent: str
    name: str
    path: Path
    repeats: int = 1


def write_split(datasets: Iterable[SplitDataset], output: Path) -> int:
    """Write the rows of all `datasets`, in order, to `output`; how many there are."""
    chosen = list(datasets)
    missing = [
        f"  {dataset.path} (dataset {dataset.name!r} of {dataset.agent!r})"
        for dataset in chosen
        if not dataset.path.is_file()
    ]
    if missing:
        raise ConfigError(
            "these datasets of the config are not there:\n" + "\n".join(missing) + "\n"
            "hint: download or prepare them first, or name a file with `--input`"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    return write_rows(output, _rows(chosen))


def _rows(datasets: list[SplitDataset]) -> Iterator[dict[str, Any]]:
    for dataset in datasets:
        for row in read_rows(dataset.path):
            named = {**row, "agent_ref": {"type": "responses_api_agents", "name": dataset.agent}}
            for _ in range(dataset.repeats):
                yield named
