# SPDX-License-Identifier: Apache-2.0
"""Upload, download and delete datasets in the model registry of a GitLab project or of an MLflow server.

An upload is read back and compared before it counts. `gitlab_registry.py` has the two kinds of registries.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nemo_gym._data.gitlab_api import GitlabError, RegistrySettings
from nemo_gym._data.gitlab_files import Checksum, Files, compute_checksum
from nemo_gym._data.gitlab_registry import DatasetRegistry, StoredVersion, open_registry
from nemo_gym._data.resumable import Progress

Notice = Callable[[str], None]
Confirm = Callable[[str], bool]
"""Asks the user a question that ends in `[y/N]: ` and returns whether the answer was yes."""

_VERSION = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}")


@dataclass(frozen=True)
class UploadedArtifact:
    """A file in the registry, as read back."""

    dataset: str
    version: str
    artifact: str
    checksum: Checksum


def _ignore(*_: object) -> None:
    """Ignore a notice."""


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
    """Put a file into a version of a dataset, completely or not at all; create dataset and version if needed.

    A version may hold several files, such as train and validation rows, but none of them is ever replaced.
    """
    if not _VERSION.fullmatch(version):
        raise GitlabError(f"{version!r} is not a version.\nhint: a version is three numbers, x.x.x, such as 0.0.1")
    if not source.is_file():
        raise GitlabError(f"{str(source)!r} is {'a folder' if source.is_dir() else 'missing'}: nothing to upload")
    checksum = compute_checksum(source)
    if not checksum.size_bytes:
        raise GitlabError(f"{str(source)!r} is empty: nothing to upload")
    done = UploadedArtifact(dataset, version, source.name, checksum)
    with open_registry(settings) as registry:
        stored = registry.find(dataset, version)
        if stored is not None and registry.files(stored).holds(source.name):
            raise GitlabError(
                f"{stored} exists and holds {source.name!r}: files in the registry are never replaced.\n"
                f"hint: upload it as a higher version than {max(registry.versions(dataset), key=_sort_key)}"
            )
        is_new = stored is None and not registry.has(dataset)
        if is_new:
            for other in registry.find_namesakes(dataset):
                notice(f"the registry also has {other!r}, which is another dataset: case matters")
        if dry_run:
            return done
        if stored is None:
            opened = registry.new_version(dataset, version, notice, is_new=is_new)
        else:
            opened = _add_file(registry.files(stored), stored, source.name, notice)
        with opened as place:
            files = registry.files(place)
            files.send(source, source.name, progress)
            if (back := files.checksum(source.name)) != checksum:
                raise GitlabError(
                    f"{source.name!r} was uploaded to {place}, but what was read back differs: "
                    f"{back.size_bytes:,} bytes instead of {checksum.size_bytes:,}, SHA-256 {back.sha256} instead of "
                    f"{checksum.sha256}.\n"
                    "hint: the file may have changed meanwhile, or a proxy changes files in transit; try again"
                )
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
    """Download a file from the registry to `target`, completely or not at all; create missing folders."""
    if target.is_dir():
        raise GitlabError(
            f"{str(target)!r} is a folder.\nhint: name the file to write, such as {str(target / artifact)!r}"
        )
    with open_registry(settings) as registry:
        stored = registry.find(dataset, version)
        if stored is None:
            _require_dataset(registry, dataset)
            known = ", ".join(sorted(registry.versions(dataset), key=_sort_key)) or "none"
            raise GitlabError(f"{dataset!r} has no version {version!r}.\nit has: {known}", 404)
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
    """Delete a dataset with all its versions and files if `confirm` agrees; return whether it was deleted."""
    with open_registry(settings) as registry:
        _require_dataset(registry, dataset_name)
        if not confirm(
            f"[Nemo-Gym] - Found model '{dataset_name}' in the registry. "
            "Are you sure you want to delete it from Gitlab? [y/N]: "
        ):
            return False
        registry.delete(dataset_name)
        if registry.has(dataset_name):
            raise GitlabError(f"the registry was asked to delete {dataset_name!r}, but still has it")
    return True


def _sort_key(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


@contextmanager
def _add_file(files: Files, stored: StoredVersion, name: str, notice: Notice) -> Iterator[StoredVersion]:
    """Open an existing version to add a file; the other files stay whatever happens to this one."""
    notice(f"{stored} exists: adding {name!r} to its files")
    try:
        yield stored
    except BaseException:
        try:
            if files.holds(name):
                files.remove(name)
        except GitlabError as error:
            notice(f"{error}\nit may be left in {stored}: delete it on the page of the model registry")
        raise


def _require_dataset(registry: DatasetRegistry, dataset: str) -> None:
    if registry.has(dataset):
        return
    message = f"the registry has no dataset {dataset!r}."
    if others := registry.find_namesakes(dataset):
        message += f"\nhint: there is {' and '.join(map(repr, others))}; case matters"
    raise GitlabError(message, 404)
