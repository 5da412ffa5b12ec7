# SPDX-License-Identifier: Apache-2.0
"""The files of a version where an MLflow server only points to them: S3, GCS, Azure, a shared folder.

MLflow's own library knows these stores and takes their credentials from where it always does; GitLab needs none of it.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from nemo_gym._data.gitlab_api import GitlabError
from nemo_gym._data.gitlab_files import Checksum, Progress, checksum_of, require_intact


class ObjectStoreFiles:
    """Files below the URI of a store; see `gitlab_files.Files`."""

    def __init__(self, folder: str) -> None:
        self._scheme = urlsplit(folder).scheme
        with _speaking_with(self._scheme):
            from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

            self._store: Any = get_artifact_repository(folder)

    def holds(self, path: str) -> bool:
        parent = str(PurePosixPath(path).parent)
        with _speaking_with(self._scheme):
            return any(found.path == path for found in self._store.list_artifacts(None if parent == "." else parent))

    def send(self, source: Path, path: str, progress: Progress) -> None:
        size = source.stat().st_size
        progress(0, size)
        with _speaking_with(self._scheme):
            self._store.log_artifact(str(source))
        progress(size, size)

    def receive(self, path: str, target: Path, sha256: str | None, progress: Progress) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._downloaded(path, near=target.parent) as file:
            require_intact(target, checksum_of(file).sha256, sha256)
            progress(file.stat().st_size, file.stat().st_size)
            file.replace(target)

    def checksum(self, path: str) -> Checksum:
        with self._downloaded(path, near=None) as file:
            return checksum_of(file)

    def remove(self, path: str) -> None:
        with _speaking_with(self._scheme):
            self._store.delete_artifacts(path or None)

    @contextmanager
    def _downloaded(self, path: str, near: Path | None) -> Iterator[Path]:
        if not self.holds(path):
            raise GitlabError(f"could not download {path!r}: the {self._scheme or 'file'} store has no such file", 404)
        with tempfile.TemporaryDirectory(dir=near, prefix=".download.") as folder:
            with _speaking_with(self._scheme):
                file = self._store.download_artifacts(path, dst_path=folder)
            yield Path(file)


@contextmanager
def _speaking_with(scheme: str) -> Iterator[None]:
    """Errors of MLflow and of the libraries below it, which are of any type, as GitlabErrors."""
    try:
        yield
    except ImportError as error:
        raise GitlabError(
            f"the registry keeps its files in a {scheme or 'file'} store, for which a library is missing: {error}.\n"
            "hint: pip install 'nemo-gym[data]', and the client library of that store"
        ) from error
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise GitlabError(
            f"the {scheme or 'file'} store of the registry did not do what it was asked: {text}\n"
            "hint: this store takes credentials of its own, as MLflow's documentation describes"
        ) from error
