# SPDX-License-Identifier: Apache-2.0
"""The files of a version in a registry, sent and received over HTTP or through a store the registry points to.

MLflow's own library handles the stores (S3, GCS, Azure, a shared folder) and takes their credentials from the usual
places; GitLab needs none of it.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote, urlsplit

from nemo_gym._data.gitlab_api import Api, GitlabError
from nemo_gym._data.resumable import Progress, RemoteFile, download, require_intact

if TYPE_CHECKING:
    from requests import Response

_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Checksum:
    """The size and hash of a file."""

    size_bytes: int
    sha256: str


def compute_checksum(path: Path) -> Checksum:
    """Return the checksum of a local file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Checksum(file.tell(), digest)


class HttpFiles:
    """Files below a URL: GitLab's packages, or the artifacts that an MLflow server serves itself."""

    def __init__(self, api: Api, url: str) -> None:
        self._api = api
        self._url = url.rstrip("/")

    def holds(self, path: str) -> bool:
        try:
            self._get(path, f"look for {path!r}", start=0).close()
        except GitlabError as error:
            if error.status in (404, 416):  # 416: it exists and is empty
                return error.status == 416
            raise
        return True

    def send(self, source: Path, path: str, progress: Progress) -> None:
        with source.open("rb") as file:
            upload = _ProgressReader(file, progress)
            headers = {"Content-Type": "application/octet-stream"}
            self._api.request("PUT", self._make_url(path), f"upload {path!r}", data=upload, headers=headers)

    def checksum(self, path: str) -> Checksum:
        """Return the checksum of what the store returns."""
        digest = hashlib.sha256()
        size = 0
        response = self._get(path, f"read {path!r} back")
        for chunk in self._chunks(response, f"read {path!r} back"):
            digest.update(chunk)
            size += len(chunk)
        return Checksum(size, digest.hexdigest())

    def remove(self, path: str) -> None:
        """Remove a file, or all of them: ``""``."""
        self._api.request("DELETE", self._make_url(path), f"remove {path or 'the files of a version'!r}")

    def receive(self, path: str, target: Path, sha256: str | None, progress: Progress) -> None:
        """Download a file completely to `target`, or leave `target` unchanged."""
        what = f"download {path!r}"
        with self._get_whole(path) as first:
            validator = _read_validator(first)
            identity = sha256 or validator
            unread = [first]

            @contextmanager
            def open_at(start: int) -> Iterator[tuple[int, Iterator[bytes]]]:
                if unread and start == 0:
                    response = unread.pop()
                else:
                    response = self._get(path, what, start, None if sha256 else validator)
                with response:
                    yield _read_start(response), self._chunks(response, what)

            remote = RemoteFile(
                repr(path),
                open_at,
                size_bytes=_read_total(first),
                identity=identity and f"{self._make_url(path)} {identity}",
                checksum=sha256,
                error=GitlabError,
                is_temporary=lambda error: isinstance(error, GitlabError) and error.status is None,
            )
            download(remote, target, progress, next(iter(self._api.settings.pauses_s), 0.0))

    def _get_whole(self, path: str) -> "Response":
        """Request a whole file, as a range if the server supports ranges."""
        try:
            return self._get(path, f"download {path!r}", start=0)
        except GitlabError as error:
            if error.status != 416:  # an empty file has no range
                raise
        return self._get(path, f"download {path!r}")

    def _get(self, path: str, what: str, start: int | None = None, validator: str | None = None) -> "Response":
        headers = {"Accept-Encoding": "identity"}
        if start is not None:
            headers["Range"] = f"bytes={start}-"
        if validator is not None and not validator.startswith("W/"):
            headers["If-Range"] = validator
        return self._api.request("GET", self._make_url(path), what, headers=headers, stream=True)

    def _chunks(self, response: "Response", what: str) -> Iterator[bytes]:
        import requests

        try:
            with response:
                yield from response.iter_content(_CHUNK_BYTES)
        except requests.RequestException as error:
            raise self._api.explain_disconnect(what, error) from error

    def _make_url(self, path: str) -> str:
        if ".." in path.split("/"):
            raise GitlabError(f"{path!r} is not the path of a file in the registry")
        return f"{self._url}/{quote(path)}".rstrip("/")


class _ProgressReader:
    """A file that reports how far it was read; its length lets it be sent in one piece with a known size."""

    def __init__(self, file: BinaryIO, progress: Progress) -> None:
        self._file = file
        self._progress = progress
        self._size = os.fstat(file.fileno()).st_size

    def __len__(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, position: int) -> int:
        return self._file.seek(position)

    def read(self, size: int = -1) -> bytes:
        chunk = self._file.read(size)
        self._progress(self._file.tell(), self._size)
        return chunk


def _read_total(response: "Response") -> int | None:
    """Return the size of the whole file; None if the server does not say."""
    if response.status_code == 206:
        return _read_range(response)[1]
    length = response.headers.get("Content-Length")
    return int(length) if length is not None else None


def _read_start(response: "Response") -> int:
    """Return the offset of what a response holds: a server without range support sends the whole file."""
    if response.status_code != 206:
        return 0
    return _read_range(response)[0]


def _read_range(response: "Response") -> tuple[int, int | None]:
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "").strip())
    if found is None:
        raise GitlabError("a part of a file arrived without saying which part it is.\nhint: is there a proxy?")
    return int(found[1]), None if found[2] == "*" else int(found[2])


def _read_validator(response: "Response") -> str | None:
    """Return what identifies this content; None if the server has no such thing or does not support ranges."""
    if response.status_code != 206:
        return None
    return response.headers.get("ETag") or response.headers.get("Last-Modified")


class ObjectStoreFiles:
    """Files below the URI of a store that the registry only points to, with the methods of `HttpFiles`."""

    def __init__(self, folder: str) -> None:
        self._scheme = urlsplit(folder).scheme
        with _explain_store_errors(self._scheme):
            from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

            self._store: Any = get_artifact_repository(folder)

    def holds(self, path: str) -> bool:
        parent = str(PurePosixPath(path).parent)
        with _explain_store_errors(self._scheme):
            return any(found.path == path for found in self._store.list_artifacts(None if parent == "." else parent))

    def send(self, source: Path, path: str, progress: Progress) -> None:
        size = source.stat().st_size
        progress(0, size)
        with _explain_store_errors(self._scheme):
            self._store.log_artifact(str(source))
        progress(size, size)

    def receive(self, path: str, target: Path, sha256: str | None, progress: Progress) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._download(path, near=target.parent) as file:
            if sha256 is not None:
                require_intact(repr(path), compute_checksum(file).sha256, sha256, GitlabError)
            progress(file.stat().st_size, file.stat().st_size)
            file.replace(target)

    def checksum(self, path: str) -> Checksum:
        with self._download(path, near=None) as file:
            return compute_checksum(file)

    def remove(self, path: str) -> None:
        with _explain_store_errors(self._scheme):
            self._store.delete_artifacts(path or None)

    @contextmanager
    def _download(self, path: str, near: Path | None) -> Iterator[Path]:
        if not self.holds(path):
            raise GitlabError(f"could not download {path!r}: the {self._scheme or 'file'} store has no such file", 404)
        with tempfile.TemporaryDirectory(dir=near, prefix=".download.") as folder:
            with _explain_store_errors(self._scheme):
                file = self._store.download_artifacts(path, dst_path=folder)
            yield Path(file)


@contextmanager
def _explain_store_errors(scheme: str) -> Iterator[None]:
    """Turn errors of MLflow and of the libraries below it, which are of any type, into GitlabErrors."""
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
            f"the {scheme or 'file'} store of the registry failed: {text}\n"
            "hint: this store needs its own credentials, as MLflow's documentation describes"
        ) from error


Files = HttpFiles | ObjectStoreFiles
"""The files of one version."""
