# SPDX-License-Identifier: Apache-2.0
"""`gym dataset upload|download --storage gitlab` and `gym dataset rm`: the model registry of a GitLab project."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BaseModel, Field, field_validator, model_validator

from nemo_gym._config.command_flags import Flag
from nemo_gym.cli import render
from nemo_gym.cli.flags import UsageError
from nemo_gym.cli.settings import parse_config, read_settings
from nemo_gym.config_types import (
    DeleteJsonlDatasetGitlabConfig,
    DownloadJsonlDatasetGitlabConfig,
    UploadJsonlDatasetGitlabConfig,
)
from nemo_gym.gitlab_utils import (
    Confirm,
    Progress,
    RegistrySettings,
    delete_jsonl_dataset,
    download_jsonl_dataset,
    registry_settings,
    upload_jsonl_dataset,
)

PREFIX = "[Nemo-Gym] - "


class _RegistryConfig(BaseModel):
    """The registry: the same keys for every command."""

    mlflow_tracking_uri: str | None = Field(
        default=None, description="The project: https://<gitlab>/api/v4/projects/<id>/ml/mlflow; set it in env.yaml."
    )
    mlflow_tracking_token: str | None = Field(
        default=None, description="A GitLab token with the scope `api`; set it in env.yaml."
    )

    json_summary: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print JSON.")

    @field_validator("version", mode="before", check_fields=False)
    @classmethod
    def explain_version(cls, value: Any) -> Any:
        if not isinstance(value, str):  # `+version=1` is a number
            raise ValueError(f"must be three numbers, x.x.x, such as 0.0.1, not {value!r}")
        return value

    @property
    def registry(self) -> RegistrySettings:
        return registry_settings(self.model_dump())


class UploadToGitlabConfig(_RegistryConfig, UploadJsonlDatasetGitlabConfig):
    """Upload a JSONL file to a GitLab model registry."""

    dry_run: bool = Field(default=False, description="Show what would happen and change nothing.")


class DownloadFromGitlabConfig(_RegistryConfig, DownloadJsonlDatasetGitlabConfig):
    """Download a JSONL file from a GitLab model registry."""

    output_dirpath: str | None = Field(default=None, description="Folder to write to, instead of `output_fpath`.")

    @model_validator(mode="before")
    @classmethod
    def name_the_file_in_the_folder(cls, data: Any) -> Any:
        folder = data.get("output_dirpath")
        artifact = data.get("artifact_fpath")
        if folder and artifact and not data.get("output_fpath"):
            return {**data, "output_fpath": str(Path(folder, PurePosixPath(artifact).name))}
        return data


class DeleteFromGitlabConfig(_RegistryConfig, DeleteJsonlDatasetGitlabConfig):
    """Delete a dataset from a GitLab model registry, after confirmation."""

    yes: Annotated[bool, Flag(short="-y")] = Field(default=False, description="Delete without asking.")


def upload(overrides: list[str]) -> int:
    """Upload a file and read it back; if that fails or the file exists, return 1 and change nothing."""
    config = read_settings(UploadToGitlabConfig, parse_config(overrides, UploadToGitlabConfig))
    with _progress_bar("uploading") as progress:
        done = upload_jsonl_dataset(config, config.registry, render.note, progress=progress, dry_run=config.dry_run)
    command = ["gym", "dataset", "download", "--storage", "gitlab", "--name", done.dataset, "--revision", done.version]
    command += ["--artifact", done.artifact, "--output", config.input_jsonl_fpath]
    if config.json_summary:
        shown = {"schema": 1, "dry_run": config.dry_run, "dataset_name": done.dataset, "version": done.version}
        checksum = {"size_bytes": done.checksum.size_bytes, "sha256": done.checksum.sha256}
        render.json_data({**shown, "artifact_fpath": done.artifact, **checksum, "download": command})
    elif config.dry_run:
        render.data(f"nothing was changed; {done.artifact!r} would go into version {done.version} of {done.dataset!r}")
    else:
        render.data(f"{PREFIX}Dataset upload successful")
        render.data(f"{done.checksum.size_bytes:,} bytes, read back and compared; SHA-256 {done.checksum.sha256}")
        render.data(f"download it with: {shlex.join(command)}")
    return 0


def download(overrides: list[str]) -> int:
    """Download a file; if that fails, return 1 and write nothing."""
    config = read_settings(DownloadFromGitlabConfig, parse_config(overrides, DownloadFromGitlabConfig))
    with _progress_bar("downloading") as progress:
        path = download_jsonl_dataset(config, config.registry, progress=progress)
    if config.json_summary:
        render.json_data({"schema": 1, "files": [{"path": path, "size_bytes": path.stat().st_size}]})
    else:
        render.data(f"{path}: {path.stat().st_size:,} bytes")
    return 0


def rm(overrides: list[str]) -> int:
    """Delete a dataset once the user confirms; return 0 either way."""
    config = read_settings(DeleteFromGitlabConfig, parse_config(overrides, DeleteFromGitlabConfig))
    is_deleted = delete_jsonl_dataset(config, make_confirmation(yes=config.yes), config.registry)
    if config.json_summary:
        render.json_data({"schema": 1, "dataset_name": config.dataset_name, "deleted_from_gitlab": is_deleted})
    else:
        render.data(f"{PREFIX}{config.dataset_name!r} is {'deleted from' if is_deleted else 'kept in'} GitLab")
    return 0


def make_confirmation(*, yes: bool) -> Confirm:
    """Return a function that asks the user on the terminal, or says yes; raise UsageError without a terminal."""
    if yes:
        return lambda question: True
    if not sys.stdin.isatty():
        raise UsageError(
            "deleting a dataset asks for confirmation, and there is no terminal to ask on.\nhint: pass --yes"
        )

    def ask(question: str) -> bool:
        # Not input(): it asks on stdout, which is for results.
        sys.stderr.write(question)
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return ask


@contextmanager
def _progress_bar(doing: str) -> Iterator[Progress]:
    """Show the progress of a transfer on a terminal, and nothing elsewhere."""
    if not render.shows_colors(sys.stderr):
        yield lambda done, total: None
        return
    from rich import progress
    from rich.console import Console

    columns = (progress.BarColumn(), progress.DownloadColumn(), progress.TransferSpeedColumn())
    with progress.Progress(doing, *columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
