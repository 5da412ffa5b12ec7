# SPDX-License-Identifier: Apache-2.0
"""Download datasets from the Hugging Face Hub: a raw file unchanged, or a split as JSONL.

A file appears complete, with the checksum the Hub gives for it, or not at all. What was received before a connection
broke or the process died is kept beside the target, and the next call resumes from there.
"""

import fcntl
import hashlib
import io
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from nemo_gym._config.dataset_types import DatasetConfig
from nemo_gym._data.hub import (
    ATTEMPTS,
    DATASET,
    PAUSE_S,
    Hub,
    HubError,
    explain_errors,
    is_temporary,
    require_client,
    retry,
)
from nemo_gym._data.hub_rows import write_jsonl
from nemo_gym._data.hub_splits import assign_splits, explain_bad_card, is_data_file
from nemo_gym._util.nearest import did_you_mean

_README = "README.md"
_LARGEST_README_BYTES = 16 << 20


@dataclass(frozen=True)
class RemoteFile:
    """A file of a dataset at one commit."""

    repo_id: str
    path: str
    commit: str
    url: str
    size_bytes: int | None
    checksum: str
    """SHA-256 of a large file, else git's id of its content."""

    def __str__(self) -> str:
        return f"{self.path!r} of {self.repo_id!r}"


def fetch_dataset(hub: Hub, dataset: DatasetConfig, target: Path) -> Path:
    """Download a dataset of a config: the raw file that its source names, or the split of its type."""
    source = dataset.huggingface_identifier
    if source is None:
        raise HubError(f"dataset {dataset.name!r} has no source on the Hugging Face Hub")
    if source.artifact_fpath:
        return download_artifact(hub, source.repo_id, source.artifact_fpath, target)
    download_split(hub, source.repo_id, dataset.type, target)
    return target


def download_artifact(hub: Hub, repo_id: str, artifact: str, target: Path, revision: str | None = None) -> Path:
    """Download one raw file of a dataset, unchanged."""
    remote = locate(hub, repo_id, artifact, revision)
    with _workspace(target) as folder:
        os.replace(_fetch(hub, remote, folder), target)
    return target


def download_split(hub: Hub, repo_id: str, split: str, target: Path, revision: str | None = None) -> int:
    """Download the rows of one split as JSONL; return how many there are."""
    commit, splits = find_splits(hub, repo_id, revision)
    if split not in splits:
        raise HubError(
            f"the dataset {repo_id!r} has no split {split!r}. {did_you_mean(split, splits)}\n"
            "hint: download raw files by name, with --artifact"
        )
    return _write_split(hub, repo_id, commit, splits[split], target)


def download_splits(
    hub: Hub, repo_id: str, folder: Path, revision: str | None = None, notice: Callable[[str], None] = lambda _: None
) -> dict[Path, int]:
    """Download every split of a dataset as `<split>.jsonl`; return how many rows each has."""
    commit, splits = find_splits(hub, repo_id, revision)
    written = {}
    for split, files in splits.items():
        target = folder / f"{split}.jsonl"
        notice(f"downloading split {split!r} of {repo_id!r}")
        written[target] = _write_split(hub, repo_id, commit, files, target)
    return written


def find_splits(hub: Hub, repo_id: str, revision: str | None = None) -> tuple[str, dict[str, list[str]]]:
    """Return the commit of a revision and the files of each split there; raise HubError if there are no data files."""
    commit = hub.dataset(repo_id, revision).sha or ""
    paths = _list_paths(hub, repo_id, commit)
    card = ""
    if _README in paths:
        readme = locate(hub, repo_id, _README, commit)
        if (readme.size_bytes or 0) > _LARGEST_README_BYTES:
            raise explain_bad_card(repo_id, f"has {readme.size_bytes:,} bytes")
        buffer = io.BytesIO()
        receive(hub, readme, buffer)
        card = buffer.getvalue().decode("utf-8", errors="replace")
    splits = assign_splits(repo_id, paths, card)
    if not splits:
        others = [path for path in paths if not path.startswith(".") and path != _README]
        raise HubError(
            f"the dataset {repo_id!r} has no data files of a known type (jsonl, json, csv, tsv, parquet).\n"
            f"its files: {', '.join(others) or 'none'}"
        )
    return commit, splits


def locate(hub: Hub, repo_id: str, path: str, revision: str | None = None) -> RemoteFile:
    """Return where a file is and what it should hold; raise HubError with the closest names if there is none."""
    require_client()
    from huggingface_hub import hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError

    def ask() -> RemoteFile:
        at = f" at revision {revision!r}" if revision else ""
        with explain_errors(f"find {path!r} in the dataset {repo_id!r}{at}"):
            url = hf_hub_url(repo_id, path, repo_type=DATASET, revision=revision, endpoint=hub.api.endpoint)
            found = hub.api.get_hf_file_metadata(url=url)
            commit = found.commit_hash or revision or "main"
            pinned = hf_hub_url(repo_id, path, repo_type=DATASET, revision=commit, endpoint=hub.api.endpoint)
        return RemoteFile(repo_id, path, commit, pinned, found.size, found.etag or "")

    try:
        return retry(ask)
    except HubError as error:
        if not isinstance(error.__cause__, EntryNotFoundError):
            raise
        known = filter(is_data_file, _list_paths(hub, repo_id, revision))
        raise HubError(
            f"the dataset {repo_id!r} has no file {path!r}. {did_you_mean(path, known)}".rstrip()
            + "\nhint: give the path as shown on the dataset's page; case matters"
        ) from error


def receive(hub: Hub, remote: RemoteFile, file: BinaryIO) -> None:
    """Append what `file` lacks of a remote file; resume a broken connection a few times."""
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils._headers import build_hf_headers

    headers = {**build_hf_headers(token=hub.token or None, library_name="nemo-gym"), "Accept-Encoding": "identity"}
    failures = 0
    while True:
        had = file.tell()
        try:
            with explain_errors(f"download {remote}"):
                http_get(
                    remote.url,
                    file,
                    resume_size=had,
                    headers=headers,
                    expected_size=remote.size_bytes,
                    displayed_filename=remote.path,
                )
            return
        except HubError as error:
            failures = 0 if file.tell() > had else failures + 1
            if failures >= ATTEMPTS or not is_temporary(error):
                raise
            time.sleep(PAUSE_S)


def _write_split(hub: Hub, repo_id: str, commit: str, files: Sequence[str], target: Path) -> int:
    with _workspace(target) as folder:
        fetched = [(path, _fetch(hub, locate(hub, repo_id, path, commit), folder)) for path in files]
        return write_jsonl(fetched, target)


def _list_paths(hub: Hub, repo_id: str, revision: str | None) -> list[str]:
    from huggingface_hub.hf_api import RepoFile

    def ask() -> list[str]:
        with explain_errors(f"list the files of the dataset {repo_id!r}"):
            tree = hub.api.list_repo_tree(repo_id, recursive=True, revision=revision, repo_type=DATASET)
            return sorted(entry.path for entry in tree if isinstance(entry, RepoFile))

    return retry(ask)


@contextmanager
def _workspace(target: Path) -> Iterator[Path]:
    """Open a folder beside the target for what was received so far; it is removed once the target exists."""
    if target.is_dir():
        raise HubError(f"{str(target)!r} is a folder.\nhint: name a file, or give the folder as --output-dir")
    folder = target.with_name(f".{target.name[:100]}.download")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HubError(
                f"another process is downloading {target} right now.\nhint: wait until it is done"
            ) from error
        try:
            yield folder
        except BaseException as error:
            if not any(folder.glob("*.part")) and not any(folder.glob("*.whole")):
                shutil.rmtree(folder)
            elif isinstance(error, HubError):
                raise HubError(f"{error}\nwhat was received is kept; the same command resumes from there") from error
            raise
        shutil.rmtree(folder)


def _fetch(hub: Hub, remote: RemoteFile, folder: Path) -> Path:
    """Download a file into `folder`, complete and checked."""
    name = (
        remote.checksum
        if remote.checksum.isalnum()
        else hashlib.sha256(f"{remote.path}@{remote.commit}".encode()).hexdigest()
    )
    whole = folder / f"{name}.whole"
    part = folder / f"{name}.part"
    if whole.exists():
        return whole
    with part.open("r+b" if part.exists() else "w+b") as file:
        file.seek(0, os.SEEK_END)
        if remote.size_bytes is not None and file.tell() > remote.size_bytes:
            file.seek(0)
            file.truncate()
        try:
            receive(hub, remote, file)
        except OSError as error:
            error.filename = error.filename or str(part)
            raise
        file.flush()
        os.fsync(file.fileno())
        actual = compute_checksum(file, like=remote.checksum)
    if actual != remote.checksum:
        part.unlink()
        raise HubError(
            f"{remote} arrived damaged: its checksum is {actual}, the Hub says {remote.checksum}.\n"
            "hint: download it again; if that does not help, a proxy may be changing files"
        )
    return part.rename(whole)


def compute_checksum(file: BinaryIO, like: str) -> str:
    """Return a file's checksum of the same type as `like`: SHA-256, or git's id of a blob; else `like` itself."""
    if len(like) == 64:
        digest = hashlib.sha256()
    elif len(like) == 40:
        digest = hashlib.sha1(b"blob %d\0" % file.seek(0, os.SEEK_END), usedforsecurity=False)
    else:
        return like
    file.seek(0)
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()
