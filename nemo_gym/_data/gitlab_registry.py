# SPDX-License-Identifier: Apache-2.0
"""A registry of datasets, GitLab or plain MLflow: they differ in how a version is created and found.

A dataset is a registered model, one of its versions carries `x.x.x` in the tag `gitlab.version`, and the files of that
version are the artifacts of its run. `gitlab_files.py` transfers the files.
"""

import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
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
    """SHA-256 of its files by path, if noted on upload."""

    def __str__(self) -> str:
        return f"version {self.version} of {self.dataset!r}"


@contextmanager
def open_registry(settings: RegistrySettings) -> Iterator["DatasetRegistry"]:
    """Open the registry that the settings name, as the right kind."""
    with closing(Api(settings)) as api:
        yield GitlabRegistry(api) if settings.is_gitlab else MlflowRegistry(api)


class DatasetRegistry(ABC):
    """What uploading, downloading and deleting need from a registry, and what both kinds have in common."""

    def __init__(self, api: Api) -> None:
        self.api = api

    @abstractmethod
    def versions(self, dataset: str) -> list[str]:
        """Return the versions of a dataset that the registry lists."""

    @abstractmethod
    def find(self, dataset: str, version: str) -> StoredVersion | None: ...

    @abstractmethod
    def new_version(
        self, dataset: str, version: str, notice: Callable[[str], None], *, is_new: bool
    ) -> AbstractContextManager[StoredVersion]:
        """Open a new version for a block that puts its files in place; if the block fails, nothing of it stays.

        `is_new` means that the dataset does not exist yet either.
        """

    def has(self, dataset: str) -> bool:
        found = self._find("registered-models/get", f"look up the dataset {dataset!r}", name=dataset)
        # A registry on a case-insensitive database finds `My_Set` where there is only `my_set`.
        return found is not None and found["registered_model"]["name"] == dataset

    def find_namesakes(self, dataset: str) -> list[str]:
        """Return the datasets whose names differ from this one only in case."""
        found = self._list("registered-models/search", "list the datasets", **self._name_filter(dataset))
        return sorted(one["name"] for one in found if one["name"].lower() == dataset.lower() and one["name"] != dataset)

    def files(self, stored: StoredVersion) -> Files:
        place = urlsplit(stored.folder)
        if place.scheme in ("http", "https"):
            return HttpFiles(self.api, stored.folder)
        if place.scheme == "mlflow-artifacts":
            origin = self.api.base
            if place.netloc:
                origin = f"{urlsplit(origin).scheme}://{place.netloc}"
            return HttpFiles(self.api, f"{origin}/api/2.0/mlflow-artifacts/artifacts{place.path}")
        return ObjectStoreFiles(stored.folder)

    def note_checksum(self, stored: StoredVersion, path: str, sha256: str) -> None:
        if not _TAG_NAME.fullmatch(path):
            return
        tag = {"run_id": stored.run_id, "key": _CHECKSUM_TAG + path, "value": sha256}
        try:
            self.api.call("POST", "runs/set-tag", f"note the checksum of {path!r}", **tag)
        except GitlabError as error:
            LOG.info("no checksum is stored with %s: %s", stored, error)

    def delete(self, dataset: str) -> None:
        self.api.call("DELETE", "registered-models/delete", f"delete the dataset {dataset!r}", name=dataset)

    def _name_filter(self, like: str) -> dict[str, str]:
        """Return a filter for names like this one, if the registry supports that."""
        return {}

    def _list(self, endpoint: str, what: str, **fields: Any) -> Iterator[dict[str, Any]]:
        """Yield the models or versions of all pages."""
        key = endpoint.partition("/")[0].replace("-", "_")
        fields["max_results"] = _PAGE
        while True:
            page = self.api.call("GET", endpoint, what, **fields)
            yield from page.get(key, ())
            if not page.get("next_page_token"):
                return
            fields["page_token"] = page["next_page_token"]

    def _load_version(self, dataset: str, version: str, run_id: str) -> StoredVersion:
        run = self.api.call("GET", "runs/get", f"look up version {version} of {dataset!r}", run_id=run_id)["run"]
        checksums = {
            key.removeprefix(_CHECKSUM_TAG): value
            for key, value in _read_tags(run.get("data", {})).items()
            if key.startswith(_CHECKSUM_TAG)
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

    def _create_version(self, dataset: str, version: str, **fields: Any) -> dict[str, Any]:
        fields["tags"] = [{"key": VERSION_TAG, "value": version}]
        what = f"create version {version} of {dataset!r}"
        return self.api.call("POST", "model-versions/create", what, name=dataset, **fields)


class GitlabRegistry(DatasetRegistry):
    """GitLab: versions are found by their number, and creating one also creates its run and the place for its files."""

    def find_namesakes(self, dataset: str) -> list[str]:
        with suppress(GitlabError):  # older GitLab cannot list models; not knowing of others is not a failure
            return super().find_namesakes(dataset)
        return []

    def versions(self, dataset: str) -> list[str]:
        found = self._find("registered-models/get", f"look up the dataset {dataset!r}", name=dataset) or {}
        return [latest["version"] for latest in found.get("registered_model", {}).get("latest_versions") or ()]

    def find(self, dataset: str, version: str) -> StoredVersion | None:
        what = f"look up version {version} of {dataset!r}"
        found = self._find("model-versions/get", what, name=dataset, version=version)
        if found is None:
            return None
        return self._load_version(dataset, version, found["model_version"]["run_id"])

    @contextmanager
    def new_version(
        self, dataset: str, version: str, notice: Callable[[str], None], *, is_new: bool
    ) -> Iterator[StoredVersion]:
        if is_new:
            self._create_model(dataset)
        has_version = False
        try:
            made = self._create_version(dataset, version, source="")
            has_version = True
            yield self._load_version(dataset, version, made["model_version"]["run_id"])
        except BaseException:
            what = f"undo version {version} of {dataset!r}"
            try:
                if is_new:
                    self.delete(dataset)
                elif has_version:
                    self.api.call("DELETE", "model-versions/delete", what, name=dataset, version=version)
            except GitlabError as error:
                notice(
                    f"{error}\nit remains in the registry without its file: upload to it again, "
                    "or delete it on the model registry page"
                )
            raise


class MlflowRegistry(DatasetRegistry):
    """Plain MLflow: it numbers versions itself, so ours is a tag; a version is made from a run that holds the files."""

    def versions(self, dataset: str) -> list[str]:
        return [number for one in self._list_versions(dataset) if (number := _read_tags(one).get(VERSION_TAG))]

    def find(self, dataset: str, version: str) -> StoredVersion | None:
        for one in self._list_versions(dataset):
            if one["name"] == dataset and _read_tags(one).get(VERSION_TAG) == version:
                return self._load_version(dataset, version, one["run_id"])
        return None

    @contextmanager
    def new_version(
        self, dataset: str, version: str, notice: Callable[[str], None], *, is_new: bool
    ) -> Iterator[StoredVersion]:
        made = self.api.call(
            "POST",
            "runs/create",
            f"begin version {version} of {dataset!r}",
            experiment_id=self._find_experiment(dataset),
            run_name=version,
            start_time=int(time.time() * 1000),
        )
        stored = self._load_version(dataset, version, made["run"]["info"]["run_id"])
        has_dataset = False
        try:
            yield stored
            if is_new:
                self._create_model(dataset)
                has_dataset = True
            self._create_version(dataset, version, source=stored.folder, run_id=stored.run_id)
            end = {"status": "FINISHED", "end_time": int(time.time() * 1000)}
            self.api.call("POST", "runs/update", "close the run of the files", run_id=stored.run_id, **end)
        except BaseException:
            try:
                if has_dataset:
                    super().delete(dataset)
                self._discard(stored, [""])
            except GitlabError as error:
                notice(f"{error}\nrun {stored.run_id} remains in the registry, but no version refers to it")
            raise

    def delete(self, dataset: str) -> None:
        """Delete the dataset, and the runs with its files, which MLflow keeps when a model is deleted."""
        stored = [
            self._load_version(dataset, version, one["run_id"])
            for one in self._list_versions(dataset)
            if one.get("run_id") and (version := _read_tags(one).get(VERSION_TAG))
        ]
        super().delete(dataset)
        for one in stored:
            self._discard(one, list(one.checksums))

    def _name_filter(self, like: str) -> dict[str, str]:
        return {"filter": f"name ILIKE {_quote(like)}"}

    def _list_versions(self, dataset: str) -> Iterator[dict[str, Any]]:
        wanted = f"name = {_quote(dataset)}"
        return self._list("model-versions/search", f"list the versions of {dataset!r}", filter=wanted)

    def _find_experiment(self, dataset: str) -> str:
        """Return the experiment that the files of a dataset belong to, creating it if needed."""
        name = f"[model]{dataset}"  # GitLab's name for the experiment of a model
        what = f"find a place for the files of {dataset!r}"
        found = self._find("experiments/get-by-name", what, experiment_name=name)
        if found is not None:
            return str(found["experiment"]["experiment_id"])
        return str(self.api.call("POST", "experiments/create", what, name=name)["experiment_id"])

    def _discard(self, stored: StoredVersion, paths: Sequence[str]) -> None:
        for path in paths:
            self.files(stored).remove(path)
        self.api.call("POST", "runs/delete", f"delete the run of {stored}", run_id=stored.run_id)


def _quote(name: str) -> str:
    return f'"{name}"' if "'" in name else f"'{name}'"


def _read_tags(holder: Mapping[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in holder.get("tags", ())}
