# SPDX-License-Identifier: Apache-2.0
"""Datasets in the model registry of a GitLab project, or of an MLflow server: upload, download, delete.

What is uploaded is read back and compared before it counts. The flavours of registries are in `gitlab_registry.py`.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nemo_gym._data.gitlab_api import GitlabError, RegistrySettings
from nemo_gym._data.gitlab_files import Checksum, Files, Progress, checksum_of
from nemo_gym._data.gitlab_registry import DatasetRegistry, StoredVersion, open_registry

Notice = Callable[[str], None]
Confirm = Callable[[str], bool]
"""Ask the user a question that ends in `[y/N]: `; whether the answer was yes."""

_VERSION = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}")


@dataclass(frozen=True)
class UploadedArtifact:
    """A file that is in the registry, as it was read back."""

    dataset: str
    version: str
    artifact: str
    checksum: Checksum


def _ignore(*_: object) -> None:
    """Take a notice that nobody wants."""


def upload(
    source: Path,
    dataset: str,
    version: str,
    settings: RegistrySettings,
    *,
    notice: Notice = _ignore,
    progress: Progress = _ignore,
    dry_run: bool = False,
) -> UploadedArtifact:
    """Put a file into a version of a dataset; both are made if they are not there. It is there whole, or not at all.

    A version may hold several files, such as train and validation rows, but none of them is ever replaced.
    """
    checksum = _check_upload(source, version)
    done = UploadedArtifact(dataset, version, source.name, checksum)
    with open_registry(settings) as registry:
        stored = registry.find(dataset, version)
        _require_free(registry, stored, source.name)
        is_new = stored is None and not registry.has(dataset)
        if is_new:
            for other in registry.alike(dataset):
                notice(f"the registry also has {other!r}, a dataset of its own: upper and lower case count")
        if dry_run:
            return done
        with (
            registry.new_version(dataset, version, notice, is_new=is_new)
            if stored is None
            else _addition(registry.files(stored), stored, source.name, notice)
        ) as place:
            files = registry.files(place)
            files.send(source, source.name, progress)
            _require_same(checksum, files.checksum(source.name), place, source.name)
            registry.note_checksum(place, source.name, checksum.sha256)
    return done


def download(
    dataset: str,
    version: str,
    artifact: str,
    target: Path,
    settings: RegistrySettings,
    *,
    progress: Progress = _ignore,
) -> Path:
    """Put a file of the registry into the place of `target`, whole or not at all; its folders are made."""
    if target.is_dir():
        raise GitlabError(
            f"{str(target)!r} is a folder.\nhint: name the file to write, such as {str(target / artifact)!r}"
        )
    with open_registry(settings) as registry:
        stored = _require_version(registry, dataset, version)
        try:
            registry.files(stored).receive(artifact, target, stored.checksums.get(artifact), progress)
        except GitlabError as error:
            if error.status != 404:
                raise
            raise GitlabError(
                f"{stored} has no file {artifact!r}.\n"
                f"files that were uploaded to it: {', '.join(map(repr, stored.checksums)) or 'not known'}",
                404,
            ) from error
    return target


def delete(dataset_name: str, settings: RegistrySettings, confirm: Confirm) -> bool:
    """Delete a dataset with all its versions and files, if `confirm` says so; whether it was deleted."""
    with open_registry(settings) as registry:
        _require_dataset(registry, dataset_name)
        if not confirm(
            f"[Nemo-Gym] - Found model '{dataset_name}' in the registry. "
            "Are you sure you want to delete it from Gitlab? [y/N]: "
        ):
            return False
        registry.delete(dataset_name)
        if registry.has(dataset_name):
            raise GitlabError(f"the registry was told to delete {dataset_name!r}, but still has it")
    return True


def _check_upload(source: Path, version: str) -> Checksum:
    if not _VERSION.fullmatch(version):
        raise GitlabError(f"{version!r} is not a version.\nhint: a version is three numbers, x.x.x, such as 0.0.1")
    if not source.is_file():
        raise GitlabError(f"{str(source)!r} is {'a folder' if source.is_dir() else 'not there'}: nothing to upload")
    checksum = checksum_of(source)
    if not checksum.size_bytes:
        raise GitlabError(f"{str(source)!r} is empty: nothing to upload")
    return checksum


def _require_free(registry: DatasetRegistry, stored: StoredVersion | None, name: str) -> None:
    if stored is not None and registry.files(stored).holds(name):
        raise GitlabError(
            f"{stored} exists and holds {name!r}: what is in the registry is not replaced.\n"
            f"hint: upload it as a higher version than {max(registry.versions(stored.dataset), key=_sort_key)}"
        )


def _sort_key(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


@contextmanager
def _addition(files: Files, stored: StoredVersion, name: str, notice: Notice) -> Iterator[StoredVersion]:
    """A place in a version that has other files, which stay whatever happens to this one."""
    notice(f"{stored} exists: {name!r} is added to its files")
    try:
        yield stored
    except BaseException:
        try:
            if files.holds(name):
                files.remove(name)
        except GitlabError as error:
            notice(f"{error}\nit may be left in {stored}: delete it on the page of the model registry")
        raise


def _require_same(sent: Checksum, back: Checksum, place: StoredVersion, name: str) -> None:
    if sent != back:
        raise GitlabError(
            f"{name!r} was uploaded to {place}, but what was read back is not the same: {back.size_bytes:,} of "
            f"{sent.size_bytes:,} bytes, SHA-256 {back.sha256} instead of {sent.sha256}.\n"
            "hint: the file may have changed meanwhile, or a proxy changes files on their way; try again"
        )


def _require_version(registry: DatasetRegistry, dataset: str, version: str) -> StoredVersion:
    stored = registry.find(dataset, version)
    if stored is not None:
        return stored
    _require_dataset(registry, dataset)
    known = sorted(registry.versions(dataset), key=_sort_key)
    raise GitlabError(f"{dataset!r} has no version {version!r}.\nit has: {', '.join(known) or 'none'}", 404)


def _require_dataset(registry: DatasetRegistry, dataset: str) -> None:
    if registry.has(dataset):
        return
    others = registry.alike(dataset)
    hint = f"\nhint: there is {' and '.join(map(repr, others))}; upper and lower case count" if others else ""
    raise GitlabError(f"the registry has no dataset {dataset!r}.{hint}", 404)
