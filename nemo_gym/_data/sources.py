# SPDX-License-Identifier: Apache-2.0
"""The datasets that are to be read: where they lie, which rows of them count, and what goes beside them."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nemo_gym._config.dataset_types import BenchmarkDatasetConfig, DatasetConfig
from nemo_gym._data.lines import stem_of
from nemo_gym._data.rows import Row
from nemo_gym.errors import GymError


class MissingDatasets(GymError, FileNotFoundError):
    """Files of datasets are not there."""


@dataclass(frozen=True)
class Source:
    """One dataset of an agent."""

    agent: str
    dataset: DatasetConfig | BenchmarkDatasetConfig
    path: Path
    """Where the file is, or will be once it is fetched or prepared."""
    prompt: Callable[[Row], Row] | None = None
    """Fills in a row's prompt; a GymError that it raises is a reason why the row is bad."""
    prepare_command: str | None = None
    """What writes the file on this machine, for those who have to be told."""

    @property
    def name(self) -> str:
        return self.dataset.name

    @property
    def type(self) -> str:
        return self.dataset.type

    @property
    def repeats(self) -> int:
        return self.dataset.num_repeats

    @property
    def start(self) -> int | None:
        return self.dataset.start_idx if isinstance(self.dataset, DatasetConfig) else None

    @property
    def end(self) -> int | None:
        return self.dataset.end_idx if isinstance(self.dataset, DatasetConfig) else None

    @property
    def is_there(self) -> bool:
        return self.path.is_file()

    def __str__(self) -> str:
        return f"{self.path} ({self.type} dataset {self.name!r} of {self.agent!r})"


def raise_if_missing(sources: Iterable[Source], *, prepare_command: str = "gym eval prepare") -> None:
    """MissingDatasets that lists every file that is not there and says how to get it."""
    missing = [source for source in sources if not source.is_there]
    if not missing:
        return
    named = [f"  {source}{_not_prepared(source)}" for source in missing]
    hints = []
    if any(isinstance(source.dataset, BenchmarkDatasetConfig) for source in missing):
        hints.append(f"hint: {prepare_command}")
    if any(isinstance(source.dataset, DatasetConfig) and _has_registry(source.dataset) for source in missing):
        hints.append("hint: `--download` (+should_download=true) fetches what has a source in a registry")
    hints += [f"hint: `{source.prepare_command}` writes {source.path}" for source in missing if source.prepare_command]
    if not hints:
        hints.append("hint: put the files there, or correct `jsonl_fpath` in the config")
    raise MissingDatasets("\n".join(["these datasets of the config are not there:", *named, *hints]))


@dataclass(frozen=True)
class Targets:
    """The files that are written for one dataset."""

    prepared: Path
    metrics: Path
    conflict: Path
    existing_metrics: Path
    """Where an earlier run, or whoever committed the data, put the metrics."""


def targets_of(sources: Sequence[Source], output: Path) -> list[Targets]:
    """Beside each dataset; in a folder of `output` where its own folder cannot be written to."""
    wanted = Counter(_beside(source) for source in sources)
    targets = []
    for source in sources:
        place = _beside(source)
        # Datasets may share a file: each gets files of its own, named after its agent too.
        stem = place.name if wanted[place] == 1 else f"{place.name}_{source.agent}_{source.name}"
        folder = place.parent if os.access(place.parent, os.W_OK) else output / "read_only_sources" / source.agent
        targets.append(
            Targets(
                prepared=folder / f"{stem}_prepare.jsonl",
                metrics=folder / f"{stem}_metrics.json",
                conflict=folder / f"{stem}_metrics_conflict.json",
                existing_metrics=place.parent / f"{stem}_metrics.json",
            )
        )
    return targets


def _beside(source: Source) -> Path:
    """Folder and stem of the files of a dataset; a part of a file is told apart from the whole."""
    stem = stem_of(source.path)
    if source.start is not None or source.end is not None:
        stem += f"_{source.start or 0}_{'end' if source.end is None else source.end}"
    return source.path.parent / stem


def _not_prepared(source: Source) -> str:
    return ": is not prepared" if isinstance(source.dataset, BenchmarkDatasetConfig) else ""


def _has_registry(dataset: DatasetConfig) -> bool:
    return dataset.gitlab_identifier is not None or dataset.huggingface_identifier is not None
