# SPDX-License-Identifier: Apache-2.0
"""A registry of datasets in two flavours, GitLab and plain MLflow: they differ in how a version is made and found.

A dataset is a registered model, one of its versions carries `x.x.x` in the tag `gitlab.version`, and the files of that
version are the artifacts of its run. How the files travel is in `gitlab_files.py`.
"""

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from nemo_gym._data.gitlab_api import NOT_THERE, Api, GitlabError, RegistrySettings
from nemo_gym._data.gitlab_files import Files, HttpFiles, ObjectStoreFiles

LOG = logging.getLogger(__name__)

VERSION_TAG = "gitlab.version"
_CHECKSUM_TAG = "nemo_gym.sha256."
_TAG_NAME = re.compile(r"[\w.\- /]{1,200}", re.ASCII)
_PAGE = 200


@dataclass(frozen=True)
class StoredVersion:
    """A version of a dataset in the registry, and where its files are."""

    dataset: str
    version: str
    run_id: str
    folder: str
    """A URI: of the registry itself (http, mlflow-artifacts) or of a store that it only points to."""
    checksums: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of its files by their path, as far as it was noted on upload."""

    def __str__(self) -> str:
        return f"version {self.version} of {self.dataset!r}"


class DatasetRegistry(Protocol):
    """What uploading, downloading and deleting need of a registry."""

    def has(self, dataset: str) -> bool: ...

    def alike(self, dataset: str) -> list[str]:
        """Datasets whose names differ from this one in upper and lower case only."""

    def versions(self, dataset: str) -> list[str]:
        """The versions of a dataset, as far as the registry lists them."""

    def find(self, dataset: str, version: str) -> StoredVersion | None: ...

    def files(self, stored: StoredVersion) -> Files: ...

    def note_checksum(self, stored: StoredVersion, path: str, sha256: str) -> None: ...

    def new_version(
        self, dataset: str, version: str, notice: Callable[[str], None], *, is_new: bool
    ) -> AbstractContextManager[StoredVersion]:
        """A context in which the files of a new version are put in place; if it fails, nothing of it stays.

        `is_new`: the dataset is not there yet either.
        """

    def delete(self, dataset: str) -> None: ...


@contextmanager
def open_registry(settings: RegistrySettings) -> Iterator[DatasetRegistry]:
    """Open the registry that the settings name, in its flavour."""
    with Api(settings) as api:
        yield GitlabRegistry(api) if settings.is_gitlab else MlflowRegistry(api)


class _CommonRegistry:
    """What both flavours do alike."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def has(self, dataset: str) -> bool:
        found = self._find("registered-models/get", f"look up the dataset {dataset!r}", name=dataset)
        # A registry on a database that ignores case finds `My_Set` where there is only `my_set`.
        return found is not None and found["registered_model"]["name"] == dataset

    def alike(self, dataset: str) -> list[str]:
        return sorted(
            name for name in self._search_names(dataset) if name.lower() == dataset.lower() and name != dataset
        )

    def files(self, stored: StoredVersion) -> Files:
        place = urlsplit(stored.folder)
        if place.scheme in ("http", "https"):
            return HttpFiles(self.api, stored.folder)
        if place.scheme == "mlflow-artifacts":
            origin = f"{urlsplit(self.api.base).scheme}://{place.netloc}" if place.netloc else self.api.base
            return HttpFiles(self.api, f"{origin}/api/2.0/mlflow-artifacts/artifacts{place.path}")
        return ObjectStoreFiles(stored.folder)

    def note_checksum(self, stored: StoredVersion, path: str, sha256: str) -> None:
        if not _TAG_NAME.fullmatch(path):
            return
        try:
            self.api.call(
                *("POST", "runs/set-tag", f"note the checksum of {path!r}"),
                run_id=stored.run_id,
                key=_CHECKSUM_TAG + path,
                value=sha256,
            )
        except GitlabError as error:
            LOG.info("no checksum is kept beside %s: %s", stored, error)

    def delete(self, dataset: str) -> None:
        self.api.call("DELETE", "registered-models/delete", f"delete the dataset {dataset!r}", name=dataset)

    def _search_names(self, like: str) -> Iterator[str]:
        """Names of datasets, among them all that are `like` in any case."""
        fields: dict[str, Any] = {"max_results": _PAGE, **self._name_filter(like)}
        while True:
            page = self._find("registered-models/search", "list the datasets", **fields) or {}
            yield from (model["name"] for model in page.get("registered_models", ()))
            if not page.get("next_page_token"):
                return
            fields["page_token"] = page["next_page_token"]

    def _name_filter(self, like: str) -> dict[str, str]:
        """What narrows a search down to such names, if the registry can do that."""
        return {}

    def _load_version(self, dataset: str, version: str, run_id: str) -> StoredVersion:
        run = self.api.call("GET", "runs/get", f"look up version {version} of {dataset!r}", run_id=run_id)["run"]
        tags = {tag["key"]: tag["value"] for tag in run.get("data", {}).get("tags", ())}
        checksums = {
            key.removeprefix(_CHECKSUM_TAG): value for key, value in tags.items() if key.startswith(_CHECKSUM_TAG)
        }
        return StoredVersion(dataset, version, run_id, run["info"]["artifact_uri"], checksums)

    def _find(self, endpoint: str, what: str, **fields: Any) -> dict[str, Any] | None:
        try:
            return self.api.call("GET", endpoint, what, **fields)
        except GitlabError as error:
            if error.code == NOT_THERE:
                return None
            raise

    def _create_model(self, dataset: str) -> None:
        self.api.call("POST", "registered-models/create", f"create the dataset {dataset!r}", name=dataset)


class GitlabRegistry(_CommonRegistry):
    """GitLab: versions are found by their number, and to make one is to make its run and the place of its files."""

    def alike(self, dataset: str) -> list[str]:
        with suppress(GitlabError):  # older GitLab cannot list models; not to know of others is no failure
            return super().alike(dataset)
        return []

    def versions(self, dataset: str) -> list[str]:
        found = self._find("registered-models/get", f"look up the dataset {dataset!r}", name=dataset) or {}
        return [latest["version"] for latest in found.get("registered_model", {}).get("latest_versions") or ()]

    def find(self, dataset: str, version: str) -> StoredVersion | None:
        what = f"look up version {version} of {dataset!r}"
        found = self._find("model-versions/get", what, name=dataset, version=version)
        return None if found is None else self._load_version(dataset, version, found["model_version"]["run_id"])

    @contextmanager
    def new_version(
        self, dataset: str, version: str, notice: Callable[[str], None], *, is_new: bool
    ) -> Iterator[StoredVersion]:
        if is_new:
            self._create_model(dataset)
        has_version = False
        try:
            made = self.api.call(
                *("POST", "model-versions/create", f"create version {version} of {dataset!r}"),
                name=dataset,
                source="",
                tags=[{"key": VERSION_TAG, "value": version}],
            )
            has_version = True
            yield self._load_version(dataset, version, made["model_version"]["run_id"])
        except BaseException:
            self._take_back(dataset, version if has_version else None, notice, is_new=is_new)
            raise

    def _take_back(self, dataset: str, version: str | None, notice: Callable[[str], None], *, is_new: bool) -> None:
        what = f"take back version {version} of {dataset!r}"
        try:
            if is_new:
                self.delete(dataset)
            elif version is not None:
                self.api.call("DELETE", "model-versions/delete", what, name=dataset, version=version)
        except GitlabError as error:
            notice(
                f"{error}\nit is left in the registry without its file: upload to it again, "
                "or delete it on the page of the model registry"
            )


class MlflowRegistry(_CommonRegistry):
    """Plain MLflow: versions are counted, so that ours is a tag; a version is made of a run that holds the files."""

    def versions(self, dataset: str) -> list[str]:
        return [number for one in self._search_versions(dataset) if (number := _tags(one).get(VERSION_TAG))]

    def find(self, dataset: str, version: str) -> StoredVersion | None:
        for one in self._search_versions(dataset):
            if one["name"] == dataset and _tags(one).get(VERSION_TAG) == version:
                return self._load_version(dataset, version, one["run_id"])
        return None

    @contextmanager
    def new_version(
        self, dataset: str, version: str, notice: Callable[[str], None], *, is_new: bool
    ) -> Iterator[StoredVersion]:
        stored = self._new_run(dataset, version)
        is_made = False
        try:
            yield stored
            if is_new:
                self._create_model(dataset)
                is_made = True
            self.api.call(
                *("POST", "model-versions/create", f"create {stored}"),
                name=dataset,
                source=stored.folder,
                run_id=stored.run_id,
                tags=[{"key": VERSION_TAG, "value": version}],
            )
            self._end_run(stored.run_id, "FINISHED")
        except BaseException:
            self._take_back(stored, notice, with_dataset=is_made)
            raise

    def delete(self, dataset: str) -> None:
        """The dataset, and the runs with the files that were uploaded, which MLflow keeps when a model goes."""
        stored = [
            self._load_version(dataset, version, one["run_id"])
            for one in self._search_versions(dataset)
            if (version := _version_of(one))
        ]
        super().delete(dataset)
        for one in stored:
            self._discard(one, list(one.checksums))

    def _name_filter(self, like: str) -> dict[str, str]:
        return {"filter": f"name ILIKE {_quote(like)}"}

    def _search_versions(self, dataset: str) -> Iterator[dict[str, Any]]:
        fields: dict[str, Any] = {"filter": f"name = {_quote(dataset)}", "max_results": _PAGE}
        while True:
            page = self.api.call("GET", "model-versions/search", f"list the versions of {dataset!r}", **fields)
            yield from page.get("model_versions", ())
            if not page.get("next_page_token"):
                return
            fields["page_token"] = page["next_page_token"]

    def _new_run(self, dataset: str, version: str) -> StoredVersion:
        made = self.api.call(
            *("POST", "runs/create", f"begin version {version} of {dataset!r}"),
            experiment_id=self._experiment(dataset),
            run_name=version,
            start_time=int(time.time() * 1000),
        )
        return self._load_version(dataset, version, made["run"]["info"]["run_id"])

    def _experiment(self, dataset: str) -> str:
        name = f"[model]{dataset}"  # as GitLab calls the experiment that belongs to a model
        what = f"find a place for the files of {dataset!r}"
        found = self._find("experiments/get-by-name", what, experiment_name=name)
        if found is not None:
            return str(found["experiment"]["experiment_id"])
        return str(self.api.call("POST", "experiments/create", what, name=name)["experiment_id"])

    def _end_run(self, run_id: str, status: str) -> None:
        self.api.call(
            *("POST", "runs/update", "close the run of the files"),
            run_id=run_id,
            status=status,
            end_time=int(time.time() * 1000),
        )

    def _take_back(self, stored: StoredVersion, notice: Callable[[str], None], *, with_dataset: bool) -> None:
        try:
            if with_dataset:
                super().delete(stored.dataset)
            self._discard(stored, [""])
        except GitlabError as error:
            notice(f"{error}\nrun {stored.run_id} is left in the registry, but no version refers to it")

    def _discard(self, stored: StoredVersion, paths: Sequence[str]) -> None:
        for path in paths:
            self.files(stored).remove(path)
        self.api.call("POST", "runs/delete", f"delete the run of {stored}", run_id=stored.run_id)


def _quote(name: str) -> str:
    return f'"{name}"' if "'" in name else f"'{name}'"


def _tags(version: Mapping[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in version.get("tags", ())}


def _version_of(version: Mapping[str, Any]) -> str | None:
    return _tags(version).get(VERSION_TAG) if version.get("run_id") else None
