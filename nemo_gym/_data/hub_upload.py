# SPDX-License-Identifier: Apache-2.0
"""Upload a JSONL file to the Hugging Face Hub: check everything before changing anything, and compare the result with
the file. A repository created for an upload that then fails is removed again.
"""

import hashlib
import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from nemo_gym._data.dataset_rows import BadRow, Offending, OffendingRows, parse_row
from nemo_gym._data.hub import DATASET, Hub, HubError, explain_errors, require_client, status_of
from nemo_gym._data.hub_download import locate
from nemo_gym._data.lines import read_raw_rows
from nemo_gym._data.resumable import compute_checksum, receive
from nemo_gym._util.row_keys import RESPONSES_CREATE_PARAMS_KEY_NAME as CREATE_PARAMS

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile

LOG = logging.getLogger(__name__)
_MAIN = "main"
_MADE_BY_THE_HUB = frozenset({".gitattributes"})


@dataclass(frozen=True)
class HubUpload:
    """What to upload, where, and how to describe the commit."""

    path: Path
    repo_id: str
    collection: str
    split: str = "train"
    create_pr: bool = False
    revision: str | None = None
    """The branch to commit to; None means main."""
    commit_message: str | None = None
    commit_description: str | None = None

    @property
    def path_in_repo(self) -> str:
        return self.path.name


@dataclass(frozen=True)
class Destination:
    """What is on the Hub before an upload."""

    exists: bool
    branch: str
    in_collection: bool
    file: "RepoFile | None" = None
    """The file that the upload would replace."""
    is_same: bool = False
    """Whether that file already has the content of the upload."""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Uploaded:
    """Where the file is now."""

    repo_id: str
    path_in_repo: str
    commit: str
    url: str
    pull_request: str | None = None
    is_changed: bool = True
    """False: the Hub already had the same file."""


def check_rows(path: Path) -> int:
    """Return how many rows a training set has; raise OffendingRows naming each row that lacks a required field."""
    offending = Offending(path)
    count = 0
    for count, (number, raw) in enumerate(read_raw_rows(path), 1):  # noqa: B007
        try:
            if CREATE_PARAMS not in parse_row(raw):
                raise BadRow((f"missing ({CREATE_PARAMS})",))
        except BadRow as bad:
            offending.add(number, bad)
    if offending:
        total = f"{offending.count} of {count} rows {'is' if offending.count == 1 else 'are'}"
        what = f"{total} not valid for split 'train'; nothing was uploaded."
        hint = "hint: the splits validation and test are uploaded unchecked"
        raise OffendingRows("\n".join([what, *offending.describe(), hint]))
    if not count:
        raise OffendingRows(f"{path} has no rows; nothing was uploaded")
    return count


def inspect(hub: Hub, wanted: HubUpload) -> Destination:
    """Return what an upload would find; raise OffendingRows or HubError if it cannot succeed. Nothing is changed."""
    require_client()
    if wanted.split == "train":
        check_rows(wanted.path)
    exists = _has_dataset(hub, wanted.repo_id)
    in_collection = _is_in_collection(hub, wanted)
    branch, remarks = _choose_branch(hub, wanted, exists)
    file = _find_file(hub, wanted.repo_id, wanted.path_in_repo, branch) if exists else None
    is_same = file is not None and _holds(file, wanted.path)
    if file is not None and not is_same:
        remarks += (f"{file.path!r} of {wanted.repo_id!r}, {file.size:,} bytes, is replaced; its history keeps it",)
    return Destination(exists, branch, in_collection, file, is_same, remarks)


def upload(
    hub: Hub, wanted: HubUpload, notice: Callable[[str], None] = LOG.info, *, show_progress: bool = False
) -> Uploaded:
    """Check the rows, create the repository if needed, commit the file, add it to the collection."""
    there = inspect(hub, wanted)
    for remark in there.remarks:
        notice(remark)
    if there.is_same:
        commit = hub.dataset(wanted.repo_id, there.branch).sha or there.branch
        done = Uploaded(wanted.repo_id, wanted.path_in_repo, commit, hub.make_url(wanted.repo_id), is_changed=False)
    else:
        with _repository(hub, wanted, there.exists), _progress_bars(shown=show_progress):
            done = _commit(hub, wanted, there.branch)
    if not there.in_collection:
        _add_to_collection(hub, wanted, notice)
    return done


def read_back(hub: Hub, uploaded: Uploaded, path: Path) -> None:
    """Read the whole file from the Hub and compare it with `path`; raise HubError if it differs."""
    remote = locate(hub, uploaded.repo_id, uploaded.path_in_repo, uploaded.commit)
    received = _Digest()
    receive(remote, cast(BinaryIO, received))
    with path.open("rb") as local:
        digest = hashlib.file_digest(local, "sha256").hexdigest()
    if received.hexdigest() != digest:
        raise HubError(
            f"{remote.name} is not the file {path}: SHA-256 {received.hexdigest()} there, {digest} here.\n"
            "hint: upload it again"
        )


def _has_dataset(hub: Hub, repo_id: str) -> bool:
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        found = hub.dataset(repo_id)
    except HubError as error:
        if isinstance(error.__cause__, RepositoryNotFoundError) and status_of(error) == 404:
            return False
        raise
    if found.id != repo_id:
        raise HubError(
            f"the Hub has a dataset {found.id!r}, whose name differs from {repo_id!r} in case or was changed.\n"
            "hint: give organization, prefix and dataset name as the Hub spells them"
        )
    return True


def _is_in_collection(hub: Hub, wanted: HubUpload) -> bool:
    try:
        with explain_errors(f"look up the collection {wanted.collection!r}"):
            collection = hub.api.get_collection(wanted.collection)
    except HubError as error:
        if status_of(error) != 404:
            raise
        raise HubError(
            f"the Hub has no collection {wanted.collection!r}.\n"
            "hint: `hf_collection_slug` is what follows the last dash in the URL of a collection, `hf_collection_name` "
            "its title"
        ) from error
    return any(item.item_type == DATASET and item.item_id == wanted.repo_id for item in collection.items)


def _choose_branch(hub: Hub, wanted: HubUpload, exists: bool) -> tuple[str, tuple[str, ...]]:
    """Return the branch to commit to, or to open a pull request against, and remarks about it."""
    if wanted.revision in (None, _MAIN):
        return _MAIN, ()
    branches = [_MAIN]
    if exists:
        with explain_errors(f"list the branches of {wanted.repo_id!r}"):
            branches = [one.name for one in hub.api.list_repo_refs(wanted.repo_id, repo_type=DATASET).branches]
    if wanted.revision in branches:
        return str(wanted.revision), ()
    if wanted.create_pr:
        remark = (
            f"{wanted.repo_id!r} has no branch {wanted.revision!r}: the pull request, which has its own branch, "
            f"is opened against {_MAIN!r}"
        )
        return _MAIN, (remark,)
    raise HubError(
        f"the dataset {wanted.repo_id!r} has no branch {wanted.revision!r}; nothing was uploaded.\n"
        f"its branches: {', '.join(branches)}\n"
        "hint: a revision is a branch here; leave it out for main. Versions such as 0.0.1 are for --storage gitlab"
    )


def _find_file(hub: Hub, repo_id: str, path: str, revision: str) -> "RepoFile | None":
    from huggingface_hub.hf_api import RepoFile

    with explain_errors(f"look up {path!r} in {repo_id!r}"):
        found = hub.api.get_paths_info(repo_id, [path], revision=revision, repo_type=DATASET)
    return next((one for one in found if isinstance(one, RepoFile)), None)


def _holds(file: "RepoFile", path: Path) -> bool:
    """Return whether a file on the Hub has the content of the one at `path`."""
    checksum = file.lfs.sha256 if file.lfs is not None else file.blob_id
    with path.open("rb") as local:
        return compute_checksum(local, checksum) == checksum


@contextmanager
def _repository(hub: Hub, wanted: HubUpload, exists: bool) -> Iterator[None]:
    """Create a repository for the block if there is none; remove it again if the block fails."""
    is_new = not exists and _create(hub, wanted)
    try:
        yield
    except BaseException as error:
        if not is_new or _remove(hub, wanted.repo_id) or not isinstance(error, HubError):
            raise
        raise HubError(f"{error}\nthe private repository {wanted.repo_id!r}, created for it, remains") from error


@contextmanager
def _progress_bars(*, shown: bool) -> Iterator[None]:
    """Show or hide the client's progress bars: by default it shows some even without a terminal."""
    from huggingface_hub import utils

    client: Any = utils  # it exports these names, but type checkers do not see that

    if shown or client.are_progress_bars_disabled():
        yield
        return
    client.disable_progress_bars()
    try:
        yield
    finally:
        client.enable_progress_bars()


def _create(hub: Hub, wanted: HubUpload) -> bool:
    """Create a private repository; return False if the token may only open pull requests: the commit will tell."""
    try:
        with explain_errors(f"make the dataset {wanted.repo_id!r}"):
            hub.api.create_repo(wanted.repo_id, repo_type=DATASET, private=True)
    except HubError as error:
        if status_of(error) == 403 and wanted.create_pr:
            return False
        if status_of(error) == 409:
            raise HubError(
                f"the Hub has a dataset that is called {wanted.repo_id!r} or so, which this token may not see.\n"
                "hint: use a token of its organization, or another dataset name"
            ) from error
        raise
    return True


def _remove(hub: Hub, repo_id: str) -> bool:
    """Remove a repository that nobody has put anything into; return False if that fails."""
    try:
        with explain_errors(f"remove {repo_id!r}"):
            if set(hub.api.list_repo_files(repo_id, repo_type=DATASET)) - _MADE_BY_THE_HUB:
                return False
            hub.api.delete_repo(repo_id, repo_type=DATASET)
    except HubError as error:
        LOG.debug("%s", error)
        return False
    return True


def _commit(hub: Hub, wanted: HubUpload, branch: str) -> Uploaded:
    with explain_errors(f"upload {str(wanted.path)!r} to {wanted.repo_id!r}"):
        commit = hub.api.upload_file(
            path_or_fileobj=str(wanted.path),
            path_in_repo=wanted.path_in_repo,
            repo_id=wanted.repo_id,
            repo_type=DATASET,
            revision=branch,
            create_pr=wanted.create_pr,
            commit_message=wanted.commit_message,
            commit_description=wanted.commit_description,
        )
    file = _find_file(hub, wanted.repo_id, wanted.path_in_repo, commit.oid)
    if file is None or not _holds(file, wanted.path):
        raise HubError(
            f"what the Hub has at {commit.commit_url} is not the file {str(wanted.path)!r}.\n"
            "hint: the file may have been changed during the upload; upload it again"
        )
    return Uploaded(wanted.repo_id, wanted.path_in_repo, commit.oid, hub.make_url(wanted.repo_id), commit.pr_url)


def _add_to_collection(hub: Hub, wanted: HubUpload, notice: Callable[[str], None]) -> None:
    try:
        with explain_errors(f"add {wanted.repo_id!r} to the collection {wanted.collection!r}"):
            hub.api.add_collection_item(wanted.collection, wanted.repo_id, DATASET, exists_ok=True)
    except HubError as error:
        if status_of(error) == 403 and wanted.create_pr:
            notice(f"{wanted.repo_id!r} was not added to the collection {wanted.collection!r}: this token may not")
            return
        raise HubError(f"the upload succeeded, but: {error}\na second run does not repeat the upload") from error


class _Digest(io.RawIOBase):
    """A file that only keeps the checksum of what is written to it."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._sha256.update(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go back to the beginning, which is all that is needed when a server sends a file again."""
        if offset or whence:
            raise io.UnsupportedOperation("a checksum can only be started again")
        self._sha256 = hashlib.sha256()
        self._size = 0
        return 0

    def truncate(self, size: int | None = None) -> int:
        return self._size

    def hexdigest(self) -> str:
        return self._sha256.hexdigest()
