# SPDX-License-Identifier: Apache-2.0
"""`gym dataset`: the commands under their older names, as functions without arguments, and the choice of storage.

`upload` and `download` use Hugging Face (`hf.py`) unless GitLab (`gitlab.py`) is named. The config classes here are
what `+help=true` shows: the keys of both; each storage checks those that it needs.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Literal

from pydantic import Field

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


class DatasetUploadConfig(BaseNeMoGymCLIConfig):
    """Upload a JSONL dataset to the Hugging Face Hub, or with `+storage=gitlab` to a GitLab model registry."""

    storage: Literal["hf", "gitlab"] = Field(default="hf", description="Where to.")
    input_jsonl_fpath: str = Field(description="JSONL file to upload.")
    dataset_name: str | None = Field(
        default=None,
        description="Name of the dataset; on Hugging Face after prefix and domain, and by default the server's.",
    )
    version: str | None = Field(default=None, description="GitLab: version to create, `x.x.x`; required there.")
    hf_token: str | None = Field(default=None, description="Token; by default that of `hf auth login` or HF_TOKEN.")
    hf_organization: str | None = Field(default=None, description="Organization that owns the dataset; required.")
    hf_collection_name: str | None = Field(default=None, description="Collection to add it to; required.")
    hf_collection_slug: str | None = Field(default=None, description="Slug at the end of its URL; required.")
    resource_config_path: str | None = Field(
        default=None, description="Config of the resources server, read for its domain; required on Hugging Face."
    )
    hf_dataset_prefix: str = Field(default="Nemotron-RL", description="First part of the repository's name.")
    split: Literal["train", "validation", "test"] = Field(
        default="train", description="Split of the rows; those of train must have `responses_create_params`."
    )
    create_pr: bool = Field(default=False, description="Open a pull request instead of pushing.")
    revision: str | None = Field(default=None, description="Hugging Face: branch to push to.")
    commit_message: str | None = Field(default=None, description="Commit message.")
    commit_description: str | None = Field(default=None, description="Commit description.")
    delete_from_gitlab: bool = Field(default=False, description="Delete the dataset from GitLab afterwards.")
    yes: bool = Field(default=False, description="Delete without asking.")
    dry_run: bool = Field(default=False, description="Show what would happen and change nothing.")
    mlflow_tracking_uri: str | None = Field(default=None, description="GitLab: URI of the registry.")
    mlflow_tracking_token: str | None = Field(default=None, description="GitLab: token.")
    json_summary: bool = Field(default=False, alias="json", description="Print JSON.")


class DatasetDownloadConfig(BaseNeMoGymCLIConfig):
    """Download a dataset from the Hugging Face Hub, or with `+storage=gitlab` from a GitLab model registry."""

    storage: Literal["hf", "gitlab"] = Field(default="hf", description="Where from.")
    repo_id: str | None = Field(default=None, description="Hugging Face: `organization/name`; required there.")
    dataset_name: str | None = Field(default=None, description="GitLab: name of the dataset; required there.")
    version: str | None = Field(default=None, description="GitLab: version, `x.x.x`; required there.")
    artifact_fpath: str | None = Field(default=None, description="Path of one raw file.")
    split: Literal["train", "validation", "test"] | None = Field(
        default=None, description="Hugging Face: only this split, as JSONL."
    )
    revision: str | None = Field(default=None, description="Hugging Face: branch, tag or commit.")
    output_fpath: str | None = Field(default=None, description="File to write; needs `split` or `artifact_fpath`.")
    output_dirpath: str | None = Field(default=None, description="Folder for `<split>.jsonl` or the raw file.")
    hf_token: str | None = Field(default=None, description="Token; public datasets need none.")
    mlflow_tracking_uri: str | None = Field(default=None, description="GitLab: URI of the registry.")
    mlflow_tracking_token: str | None = Field(default=None, description="GitLab: token.")
    json_summary: bool = Field(default=False, alias="json", description="Print JSON.")


def _run_in_storage(action: str, overrides: list[str]) -> int:
    """Upload to or download from the chosen storage."""
    own, rest = split_off(overrides, _STORAGE)
    storage = str(own.get(_STORAGE, "hf"))
    require_choice(_STORAGE, storage, tuple(STORAGES))
    implementation: Callable[[list[str]], int] = getattr(importlib.import_module(STORAGES[storage]), action)
    return implementation(rest)


upload = functools.partial(_run_in_storage, "upload")
download = functools.partial(_run_in_storage, "download")
