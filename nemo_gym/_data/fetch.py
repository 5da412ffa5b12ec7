# SPDX-License-Identifier: Apache-2.0
"""Fetch datasets that are not there from the registry that has them.

How a registry is spoken to is not known here: there is a function for each, ours or one that is handed in.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from nemo_gym._config.dataset_types import DatasetConfig
from nemo_gym._data import gitlab
from nemo_gym._data.gitlab_api import RegistrySettings
from nemo_gym._data.hub import Hub
from nemo_gym._data.hub_download import fetch_dataset
from nemo_gym._data.sources import Source
from nemo_gym.errors import GymError

Registry = Literal["huggingface", "gitlab"]
Fetch = Callable[[DatasetConfig, Path], Path]
"""Write the rows of a dataset to a path, completely or not at all, and return that path."""


class CannotFetch(GymError):
    """A dataset is not there and cannot be fetched."""


def registry_of(dataset: DatasetConfig, preferred: Registry) -> Registry | None:
    """The registry to fetch from: the preferred one if the dataset is in both, None if it is in none."""
    places: dict[Registry, bool] = {
        "huggingface": dataset.huggingface_identifier is not None,
        "gitlab": dataset.gitlab_identifier is not None,
    }
    if places[preferred]:
        return preferred
    return next((name for name, is_there in places.items() if is_there), None)


def fetch_missing(
    sources: Iterable[Source], preferred: Registry, fetchers: Mapping[str, Fetch], notice: Callable[[str], None]
) -> None:
    """Fetch every dataset that is not there and has a source in a registry; CannotFetch says why one cannot be."""
    todo: dict[Path, tuple[Source, DatasetConfig, Registry]] = {}
    for source in sources:
        if source.is_there or not isinstance(source.dataset, DatasetConfig):
            continue
        registry = registry_of(source.dataset, preferred)
        if registry is not None:
            todo.setdefault(source.path, (source, source.dataset, registry))
    unknown = [one for one in todo.values() if one[2] not in fetchers]
    if unknown:
        raise CannotFetch(
            "\n".join(
                [
                    "these datasets are not there, and the config does not say how their registry is reached:",
                    *(f"  {source} at {place_of(dataset, registry)}" for source, dataset, registry in unknown),
                    "hint: put `mlflow_tracking_uri` and `mlflow_tracking_token` of GitLab into env.yaml",
                    *_other_ways(unknown),
                ]
            )
        )
    for path, (source, dataset, registry) in todo.items():
        notice(f"fetching {path} from {place_of(dataset, registry)}")
        try:
            fetchers[registry](dataset, path)
        except GymError as error:
            raise CannotFetch(
                "\n".join(
                    [
                        f"{source} is not there, and could not be fetched from {place_of(dataset, registry)}:",
                        str(error),
                        *_other_ways([(source, dataset, registry)]),
                    ]
                )
            ) from error


def _other_ways(failed: Iterable[tuple[Source, DatasetConfig, Registry]]) -> Iterator[str]:
    """Hints how to get the files without the registry that failed."""
    for source, dataset, registry in failed:
        other: Registry = "gitlab" if registry == "huggingface" else "huggingface"
        if registry_of(dataset, other) == other:
            yield f"hint: `+data_source={other}` fetches {source.path} from {place_of(dataset, other)}"
        if source.prepare_command:
            yield f"hint: `{source.prepare_command}` writes {source.path} on this machine"


def place_of(dataset: DatasetConfig, registry: Registry) -> str:
    """Describe where in `registry` a dataset is."""
    if registry == "huggingface" and dataset.huggingface_identifier is not None:
        found = dataset.huggingface_identifier
        return f"Hugging Face {found.repo_id}{f', file {found.artifact_fpath}' if found.artifact_fpath else ''}"
    if dataset.gitlab_identifier is not None:
        gitlab = dataset.gitlab_identifier
        return f"GitLab {gitlab.dataset_name} {gitlab.version}, file {gitlab.artifact_fpath}"
    return registry


@dataclass(frozen=True)
class Credentials:
    """What the registries are asked with, as a config has it."""

    hf_token: str | None = field(default=None, repr=False)
    mlflow_tracking_uri: str | None = None
    mlflow_tracking_token: str | None = field(default=None, repr=False)


def known_fetchers(credentials: Credentials) -> dict[str, Fetch]:
    """By registry, the function that fetches from it; GitLab only where the config says which one."""
    fetchers: dict[str, Fetch] = {"huggingface": partial(fetch_dataset, Hub(credentials.hf_token))}
    if credentials.mlflow_tracking_uri:
        settings = RegistrySettings(credentials.mlflow_tracking_uri, credentials.mlflow_tracking_token)
        fetchers["gitlab"] = partial(fetch_from_gitlab, settings)
    return fetchers


def fetch_from_gitlab(settings: RegistrySettings, dataset: DatasetConfig, path: Path) -> Path:
    """Download the file that a dataset of a config names."""
    place = dataset.gitlab_identifier
    assert place is not None, "only datasets of this registry are fetched from it"
    return gitlab.download(place.dataset_name, place.version, place.artifact_fpath, path, settings)
