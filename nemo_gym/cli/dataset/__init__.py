# SPDX-License-Identifier: Apache-2.0
"""`gym dataset`: the commands under their older names, as functions without arguments, and the choice of storage.

`upload` and `download` use Hugging Face (`hf.py`) unless GitLab (`gitlab.py`) is named. The config classes here are
what `+help=true` shows: the keys of both; each storage checks those that it needs.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from nemo_gym._config.command_flags import Flag
from nemo_gym.cli.flags import require_choice
from nemo_gym.cli.legacy import entry_point
from nemo_gym.cli.settings import split_off
from nemo_gym.config_types import BaseNeMoGymCLIConfig

prepare_data = entry_point("prepare_data")
materialize_prompts_cli = entry_point("materialize_prompts")
upload_jsonl_dataset_cli = entry_point("upload_dataset_to_gitlab")
download_jsonl_dataset_cli = entry_point("download_dataset_from_gitlab")
delete_jsonl_dataset_from_gitlab_cli = entry_point("delete_dataset_from_gitlab")
upload_jsonl_dataset_to_hf_cli = entry_point("upload_dataset_to_hf")
upload_jsonl_dataset_to_hf_and_delete_gitlab_cli = entry_point("gitlab_to_hf_dataset")
download_jsonl_dataset_from_hf_cli = entry_point("download_dataset_from_hf")


STORAGES = {"hf": "nemo_gym.cli.dataset.hf", "gitlab": "nemo_gym.cli.dataset.gitlab"}
_STORAGE = "storage"


class DatasetMigrateConfig(BaseNeMoGymCLIConfig):
    """Upload a JSONL dataset to the Hugging Face Hub, read it back, then delete it from GitLab after a confirmation."""

    input_jsonl_fpath: Annotated[str, Flag("--input", short="-i")] = Field(description="The JSONL file to upload.")
    dataset_name: Annotated[str | None, Flag("--name")] = Field(
        default=None,
        description="Name of the dataset; on Hugging Face after prefix and domain, and by default the server's.",
    )
    version: Annotated[str | None, Flag("--revision", also=("revision",))] = Field(
        default=None, description="GitLab: the version, `x.x.x`, required there; Hugging Face: the branch."
    )
    revision: str | None = Field(default=None, description="Hugging Face: branch to push to.")
    split: Annotated[Literal["train", "validation", "test"], Flag()] = Field(
        default="train",
        description="Split of the rows, by default train, whose rows must have `responses_create_params`.",
    )
    create_pr: Annotated[bool, Flag()] = Field(
        default=False, description="Hugging Face: open a pull request instead of pushing."
    )
    resource_config_path: Annotated[str | None, Flag("--resource-config")] = Field(
        default=None,
        description="Config of the resources server, for the domain in the name; required on Hugging Face.",
    )
    hf_organization: Annotated[str | None, Flag("--organization")] = Field(
        default=None, description="Hugging Face: owner of the dataset; required there."
    )
    hf_collection_name: Annotated[str | None, Flag("--collection-name")] = Field(
        default=None, description="Hugging Face: title of the collection to add it to; required there."
    )
    hf_collection_slug: Annotated[str | None, Flag("--collection-slug")] = Field(
        default=None, description="Hugging Face: slug at the end of the collection's URL; required there."
    )
    hf_dataset_prefix: Annotated[str, Flag("--prefix")] = Field(
        default="Nemotron-RL", description="Hugging Face: first part of the dataset's name."
    )
    hf_token: str | None = Field(default=None, description="Token; by default that of `hf auth login` or HF_TOKEN.")
    commit_message: Annotated[str | None, Flag()] = Field(default=None, description="Hugging Face: commit message.")
    commit_description: Annotated[str | None, Flag()] = Field(
        default=None, description="Hugging Face: commit description."
    )
    yes: Annotated[bool, Flag(short="-y")] = Field(default=False, description="Delete without asking.")
    dry_run: Annotated[bool, Flag()] = Field(default=False, description="Show what would happen and change nothing.")
    json_summary: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print JSON.")
    mlflow_tracking_uri: str | None = Field(default=None, description="GitLab: URI of the registry.")
    mlflow_tracking_token: str | None = Field(default=None, description="GitLab: token.")


class DatasetUploadConfig(DatasetMigrateConfig):
    """Upload a JSONL dataset to the Hugging Face Hub, or with `+storage=gitlab` to a GitLab model registry."""

    storage: Annotated[Literal["hf", "gitlab"], Flag()] = Field(
        default="hf", description="Where to store the dataset; by default Hugging Face."
    )
    delete_from_gitlab: Annotated[bool, Flag()] = Field(
        default=False, description="Delete the dataset from GitLab afterwards."
    )


class DatasetDownloadConfig(BaseNeMoGymCLIConfig):
    """Download a dataset from the Hugging Face Hub, or with `+storage=gitlab` from a GitLab model registry."""

    storage: Annotated[Literal["hf", "gitlab"], Flag()] = Field(
        default="hf", description="Where the dataset is stored; by default Hugging Face."
    )
    repo_id: Annotated[str | None, Flag()] = Field(
        default=None, description="Hugging Face: `organization/name`; required there."
    )
    dataset_name: Annotated[str | None, Flag("--name")] = Field(
        default=None, description="GitLab: name of the dataset; required there."
    )
    version: Annotated[str | None, Flag("--revision", also=("revision",))] = Field(
        default=None, description="GitLab: the version, `x.x.x`, required there; Hugging Face: branch, tag or commit."
    )
    artifact_fpath: Annotated[str | None, Flag("--artifact")] = Field(
        default=None, description="One raw file, by its path in the dataset."
    )
    split: Annotated[Literal["train", "validation", "test"] | None, Flag()] = Field(
        default=None, description="Hugging Face: only this split, as JSONL."
    )
    revision: str | None = Field(default=None, description="Hugging Face: branch, tag or commit.")
    output_fpath: Annotated[str | None, Flag("--output", short="-o")] = Field(
        default=None, description="The file to write; needs a split or a raw file."
    )
    output_dirpath: Annotated[str | None, Flag("--output-dir")] = Field(
        default=None, description="The folder for all splits, or for the one named."
    )
    hf_token: str | None = Field(default=None, description="Token; public datasets need none.")
    mlflow_tracking_uri: str | None = Field(default=None, description="GitLab: URI of the registry.")
    mlflow_tracking_token: str | None = Field(default=None, description="GitLab: token.")
    json_summary: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print JSON.")


def _run_in_storage(action: str, overrides: list[str]) -> int:
    """Upload to or download from the chosen storage."""
    own, rest = split_off(overrides, _STORAGE)
    storage = str(own.get(_STORAGE, "hf"))
    require_choice(_STORAGE, storage, tuple(STORAGES))
    implementation: Callable[[list[str]], int] = getattr(importlib.import_module(STORAGES[storage]), action)
    return implementation(rest)


upload = functools.partial(_run_in_storage, "upload")
download = functools.partial(_run_in_storage, "download")
