# SPDX-License-Identifier: Apache-2.0
"""The datasets of a config to be read: where they are, what goes beside them, how missing ones are downloaded.

Registries are accessed through one function each, ours or one that is passed in.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from nemo_gym._config.dataset_types import BenchmarkDatasetConfig, DatasetConfig
from nemo_gym._data import gitlab
from nemo_gym._data.dataset_rows import Row
from nemo_gym._data.gitlab_api import RegistrySettings
from nemo_gym._data.hub import Hub
from nemo_gym._data.hub_download import fetch_dataset
from nemo_gym._data.lines import strip_suffixes
from nemo_gym.errors import GymError

Registry = Literal["huggingface", "gitlab"]
Fetch = Callable[[DatasetConfig, Path], Path]
"""Writes the rows of a dataset to a path, completely or not at all, and returns that path."""


class MissingDatasets(GymError, FileNotFoundError):
    """Dataset files are missing."""


class CannotFetch(GymError):
    """A dataset is missing and cannot be downloaded."""


@dataclass(frozen=True)
class Source:
    """One dataset of an agent."""

    agent: str
    dataset: DatasetConfig | BenchmarkDatasetConfig
    path: Path
    """Where the file is, or will be once it is downloaded or prepared."""
    prompt: Callable[[Row], Row] | None = None
    """Fills in a row's prompt; if it raises a GymError, the row is bad."""
    prepare_command: str | None = None
    """The command that writes the file on this machine, for hints."""

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
    def exists(self) -> bool:
        return self.path.is_file()

    @property
    def is_benchmark(self) -> bool:
        return isinstance(self.dataset, BenchmarkDatasetConfig)

    def __str__(self) -> str:
        return f"{self.path} ({self.type} dataset {self.name!r} of {self.agent!r})"


def raise_if_missing(sources: Iterable[Source], *, prepare_command: str = "gym eval prepare") -> None:
    """Raise MissingDatasets, listing every missing file and how to get it."""
    missing = [source for source in sources if not source.exists]
    if not missing:
        return
    named = [f"  {source}: is not prepared" if source.is_benchmark else f"  {source}" for source in missing]
    hints = []
    if any(source.is_benchmark for source in missing):
        hints.append(f"hint: {prepare_command}")
    if any(isinstance(one.dataset, DatasetConfig) and choose_registry(one.dataset, "gitlab") for one in missing):
        hints.append(
            "hint: `ng_prepare_data +should_download=true`, which is `gym dataset collate --download`, with the same "
            "config fetches what has an identifier"
        )
    hints += [f"hint: `{source.prepare_command}` writes {source.path}" for source in missing if source.prepare_command]
    if not hints:
        hints.append("hint: put the files there, or correct `jsonl_fpath` in the config")
    raise MissingDatasets("\n".join(["these datasets of the config are not there:", *named, *hints]))


@dataclass(frozen=True)
class Targets:
    """The files written for one dataset."""

    prepared: Path
    metrics: Path
    conflict: Path
    existing_metrics: Path
    """Where an earlier run, or whoever committed the data, put the metrics."""


def plan_targets(sources: Sequence[Source], output: Path) -> list[Targets]:
    """Return where to write: beside each dataset, or in a folder of `output` if its own folder is read-only."""
    wanted = Counter(_choose_stem(source) for source in sources)
    targets = []
    for source in sources:
        place = _choose_stem(source)
        stem = place.name
        if wanted[place] > 1:  # datasets may share a file: each gets its own files, named after its agent too
            stem += f"_{source.agent}_{source.name}"
        folder = place.parent
        if not os.access(folder, os.W_OK):
            folder = output / "read_only_sources" / source.agent
        targets.append(
            Targets(
                prepared=folder / f"{stem}_prepare.jsonl",
                metrics=folder / f"{stem}_metrics.json",
                conflict=folder / f"{stem}_metrics_conflict.json",
                existing_metrics=place.parent / f"{stem}_metrics.json",
            )
        )
    return targets


def _choose_stem(source: Source) -> Path:
    """Return folder and stem of a dataset's files; a part of a file gets a different name than the whole."""
    stem = strip_suffixes(source.path)
    if source.start is not None or source.end is not None:
        end = "end" if source.end is None else source.end
        stem += f"_{source.start or 0}_{end}"
    return source.path.parent / stem


# --- downloading what is missing --------------------------------------------------------------------------------------


def choose_registry(dataset: DatasetConfig, preferred: Registry) -> Registry | None:
    """Return the registry to download from: the preferred one if the dataset is in both, None if it is in neither."""
    places: dict[Registry, bool] = {
        "huggingface": dataset.huggingface_identifier is not None,
        "gitlab": dataset.gitlab_identifier is not None,
    }
    if places[preferred]:
        return preferred
    return next((name for name, exists in places.items() if exists), None)


def fetch_missing(
    sources: Iterable[Source], preferred: Registry, fetchers: Mapping[str, Fetch], notice: Callable[[str], None]
) -> None:
    """Download every missing dataset that has a source in a registry; raise CannotFetch if one cannot be downloaded."""
    todo: dict[Path, tuple[Source, DatasetConfig, Registry]] = {}
    for source in sources:
        if source.exists or not isinstance(source.dataset, DatasetConfig):
            continue
        registry = choose_registry(source.dataset, preferred)
        if registry is not None:
            todo.setdefault(source.path, (source, source.dataset, registry))
    unknown = [one for one in todo.values() if one[2] not in fetchers]
    if unknown:
        raise CannotFetch(
            "\n".join(
                [
                    "these datasets are missing, and the config does not say how to reach their registry:",
                    *(f"  {source} at {describe_place(dataset, registry)}" for source, dataset, registry in unknown),
                    "hint: put `mlflow_tracking_uri` and `mlflow_tracking_token` of GitLab into env.yaml",
                    *_suggest_other_ways(unknown),
                ]
            )
        )
    for path, (source, dataset, registry) in todo.items():
        notice(f"fetching {path} from {describe_place(dataset, registry)}")
        try:
            fetchers[registry](dataset, path)
        except GymError as error:
            raise CannotFetch(
                "\n".join(
                    [
                        f"{source} is missing, and could not be fetched from {describe_place(dataset, registry)}:",
                        str(error),
                        *_suggest_other_ways([(source, dataset, registry)]),
                    ]
                )
            ) from error


def _suggest_other_ways(failed: Iterable[tuple[Source, DatasetConfig, Registry]]) -> Iterator[str]:
    """Yield hints on how to get the files without the registry that failed."""
    for source, dataset, registry in failed:
        other: Registry = "gitlab" if registry == "huggingface" else "huggingface"
        if choose_registry(dataset, other) == other:
            yield f"hint: `+data_source={other}` fetches {source.path} from {describe_place(dataset, other)}"
        if source.prepare_command:
            yield f"hint: `{source.prepare_command}` writes {source.path} on this machine"


def describe_place(dataset: DatasetConfig, registry: Registry) -> str:
    """Describe where in `registry` a dataset is."""
    if registry == "huggingface" and dataset.huggingface_identifier is not None:
        found = dataset.huggingface_identifier
        if not found.artifact_fpath:
            return f"Hugging Face {found.repo_id}"
        return f"Hugging Face {found.repo_id}, file {found.artifact_fpath}"
    if dataset.gitlab_identifier is not None:
        known = dataset.gitlab_identifier
        return f"GitLab {known.dataset_name} {known.version}, file {known.artifact_fpath}"
    return registry


def make_fetchers(
    hf_token: str | None, mlflow_tracking_uri: str | None, mlflow_tracking_token: str | None
) -> dict[str, Fetch]:
    """Return, by registry, the function that downloads from it; GitLab only if the config says which one."""
    fetchers: dict[str, Fetch] = {"huggingface": partial(fetch_dataset, Hub(hf_token))}
    if mlflow_tracking_uri:
        settings = RegistrySettings(mlflow_tracking_uri, mlflow_tracking_token)
        fetchers["gitlab"] = partial(fetch_from_gitlab, settings)
    return fetchers


def fetch_from_gitlab(settings: RegistrySettings, dataset: DatasetConfig, path: Path) -> Path:
    """Download the file that a dataset of a config names."""
    place = dataset.gitlab_identifier
    assert place is not None, "only datasets of this registry are fetched from it"
    return gitlab.download(place.dataset_name, place.version, place.artifact_fpath, path, settings)
