# SPDX-License-Identifier: Apache-2.0
"""Download datasets from the Hugging Face Hub: a raw file unchanged, or a split as JSONL.

A file appears complete, with the checksum the Hub gives for it, or not at all; see `resumable.py`.
"""

import hashlib
import io
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nemo_gym._config.dataset_types import DatasetConfig
from nemo_gym._data.hub import DATASET, Hub, HubError, explain_errors, is_temporary, require_client, retry
from nemo_gym._data.hub_rows import write_jsonl
from nemo_gym._data.hub_splits import assign_splits, explain_bad_card, is_data_file
from nemo_gym._data.resumable import RemoteFile, download, lock_download, receive
from nemo_gym._util.nearest import did_you_mean

_README = "README.md"
_LARGEST_README_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 16
_LONGEST_NAME_SHOWN = 40


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
        os.replace(_fetch(remote, artifact, folder), target)
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
        receive(readme, buffer)
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
        name = f"{path!r} of {repo_id!r}"
        return RemoteFile(
            name,
            lambda start: _open_at(hub, name, pinned, start),
            size_bytes=found.size,
            identity=found.etag or f"{path}@{commit}",
            checksum=found.etag,
            error=HubError,
            is_temporary=is_temporary,
        )

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


@contextmanager
def _open_at(hub: Hub, name: str, url: str, start: int) -> Iterator[tuple[int, Iterator[bytes]]]:
    """Request a file from an offset on; give the offset of what is sent, and its content."""
    from huggingface_hub import constants, get_session, utils

    client: Any = utils  # it exports these names, but type checkers do not see that
    headers = {
        **client.build_hf_headers(token=hub.token or None, library_name="nemo-gym"),
        "Accept-Encoding": "identity",
    }
    if start:
        headers["Range"] = f"bytes={start}-"
    # httpx since version 1 of the library; requests before, whose `stream` is a setting.
    session: Any = get_session()
    with explain_errors(f"download {name}"):
        if callable(session.stream):
            timeout_s = constants.HF_HUB_DOWNLOAD_TIMEOUT
            request = session.stream("GET", url, headers=headers, timeout=timeout_s, follow_redirects=True)
        else:
            request = session.get(url, headers=headers, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT, stream=True)
        with request as response:
            client.hf_raise_for_status(response)
            chunks = response.iter_raw() if hasattr(response, "iter_raw") else response.iter_content(_CHUNK_BYTES)
            yield (start if response.status_code == 206 else 0), chunks


def _write_split(hub: Hub, repo_id: str, commit: str, files: Sequence[str], target: Path) -> int:
    with _workspace(target) as folder:
        fetched = [(path, _fetch(locate(hub, repo_id, path, commit), path, folder)) for path in files]
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
        lock_download(lock, target, HubError)
        try:
            yield folder
        except BaseException as error:
            whole = len([*folder.glob("*.whole")])
            if not whole and not any(folder.glob("*.part")):
                shutil.rmtree(folder)
            elif whole and isinstance(error, HubError):
                raise HubError(
                    f"{error}\ncomplete files are kept: {whole}; the same command resumes from there"
                ) from error
            raise
        shutil.rmtree(folder)


def _fetch(remote: RemoteFile, path: str, folder: Path) -> Path:
    """Download a file into `folder`, unless it is there already."""
    whole = folder / f"{hashlib.sha256(str(remote.identity).encode()).hexdigest()}.whole"
    if whole.exists():
        return whole
    from huggingface_hub import utils

    client: Any = utils  # it exports the name, but type checkers do not see that
    with client.tqdm(
        desc=path[-_LONGEST_NAME_SHOWN:], total=remote.size_bytes, unit="B", unit_scale=True, disable=None
    ) as bar:
        download(remote, whole, lambda done, _: bar.update(done - bar.n))
    return whole
