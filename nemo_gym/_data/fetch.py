# SPDX-License-Identifier: Apache-2.0
"""Where a dataset that is not there can be fetched, and the seam through which it is.

How a registry is spoken to is not known here: a function for each is handed in, such as those of `registries.py`.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

from nemo_gym._config.dataset_types import DatasetConfig
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
    """Fetch every dataset that is not there and has a source in a registry; CannotFetch names all that cannot be."""
    todo: dict[Path, tuple[DatasetConfig, Registry]] = {}
    for source in sources:
        if source.is_there or not isinstance(source.dataset, DatasetConfig):
            continue
        registry = registry_of(source.dataset, preferred)
        if registry is not None:
            todo.setdefault(source.path, (source.dataset, registry))
    unreachable = [
        f"  {path}: dataset {dataset.name!r} at {_place(dataset, registry)}"
        for path, (dataset, registry) in todo.items()
        if registry not in fetchers
    ]
    if unreachable:
        raise CannotFetch(
            "these datasets are not there, and their registry cannot be reached from here:\n"
            + "\n".join(unreachable)
            + "\nhint: put `mlflow_tracking_uri` and `mlflow_tracking_token` of GitLab into env.yaml, or download them"
        )
    for path, (dataset, registry) in todo.items():
        notice(f"fetching {path} from {_place(dataset, registry)}")
        fetchers[registry](dataset, path)


def _place(dataset: DatasetConfig, registry: Registry) -> str:
    if registry == "huggingface" and dataset.huggingface_identifier is not None:
        found = dataset.huggingface_identifier
        return f"Hugging Face {found.repo_id}{f', file {found.artifact_fpath}' if found.artifact_fpath else ''}"
    if dataset.gitlab_identifier is not None:
        gitlab = dataset.gitlab_identifier
        return f"GitLab {gitlab.dataset_name} {gitlab.version}, file {gitlab.artifact_fpath}"
    return registry
