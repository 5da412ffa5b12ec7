# SPDX-License-Identifier: Apache-2.0
"""`gym dataset upload`, `download` and `migrate` with the Hugging Face Hub."""

import sys
from dataclasses import asdict
from typing import Any

from omegaconf import OmegaConf
from pydantic import Field

from nemo_gym._data import gitlab
from nemo_gym._data.hub import require_client
from nemo_gym.cli import render
from nemo_gym.cli.dataset.gitlab import PREFIX, make_confirmation
from nemo_gym.cli.settings import parse_config, validate_settings
from nemo_gym.config_types import (
    BaseNeMoGymCLIConfig,
    BaseUploadJsonlDatasetHuggingFaceConfig,
    DownloadJsonlDatasetHuggingFaceConfig,
    UploadJsonlDatasetHuggingFaceConfig,
    UploadJsonlDatasetHuggingFaceMaybeDeleteConfig,
)
from nemo_gym.gitlab_utils import registry_settings
from nemo_gym.global_config import HF_TOKEN_KEY_NAME
from nemo_gym.hf_utils import (
    Destination,
    Upload,
    Uploaded,
    download_jsonl_dataset,
    look_before_upload,
    plain_name,
    plan_upload,
    upload_jsonl_dataset,
)


class _Handling(BaseNeMoGymCLIConfig):
    """How to transfer, besides what to transfer."""

    yes: bool = Field(default=False, description="Delete without asking.")
    dry_run: bool = Field(default=False, description="Show what would happen and change nothing.")
    json_summary: bool = Field(default=False, alias="json", description="Print JSON.")
    revision: str | None = Field(default=None, description="Branch, tag or commit.")


def upload(overrides: list[str]) -> int:
    """Upload a file; if a training row lacks a required field or the Hub refuses, return 1 and change nothing."""
    values = _read_values(overrides)
    config = validate_settings(UploadJsonlDatasetHuggingFaceMaybeDeleteConfig, _add_login(values))
    return _transfer(config, values, then_delete=config.delete_from_gitlab)


def migrate(overrides: list[str]) -> int:
    """Upload a file, read it back, and only then delete the dataset of that name from GitLab."""
    values = _read_values(overrides)
    config = validate_settings(UploadJsonlDatasetHuggingFaceConfig, _add_login(values))
    return _transfer(config, values, then_delete=True)


def download(overrides: list[str]) -> int:
    """Download a raw file, a split or all splits; never write a partial file."""
    values = _read_values(overrides)
    config = validate_settings(DownloadJsonlDatasetHuggingFaceConfig, values)
    handling = validate_settings(_Handling, values)
    written = download_jsonl_dataset(config, render.note, revision=handling.revision)
    if handling.json_summary:
        render.json_data({"schema": 1, "files": [{"path": path, "rows": rows} for path, rows in written.items()]})
        return 0
    for path, rows in written.items():
        if rows is None:
            render.data(str(path))
        else:
            render.data(f"{path}: {rows} {'row' if rows == 1 else 'rows'}")
    return 0


def _transfer(config: BaseUploadJsonlDatasetHuggingFaceConfig, values: dict[str, Any], *, then_delete: bool) -> int:
    handling = validate_settings(_Handling, values)
    wanted = plan_upload(config)
    name = plain_name(config)
    registry = registry_settings(values) if then_delete else None
    if registry is not None:
        # It must exist in GitLab, under exactly this name, before anything is uploaded.
        gitlab.delete(name, registry, lambda _: False)
    if handling.dry_run:
        _show_plan(wanted, look_before_upload(config), name if then_delete else None, as_json=handling.json_summary)
        return 0
    confirm = make_confirmation(yes=handling.yes) if then_delete else None
    done = upload_jsonl_dataset(config, render.note, show_progress=sys.stderr.isatty(), read_back=then_delete)
    if not handling.json_summary:
        _show(done, wanted)
    is_deleted = registry is not None and confirm is not None and gitlab.delete(name, registry, confirm)
    if handling.json_summary:
        render.json_data({"schema": 1, **asdict(done), "deleted_from_gitlab": is_deleted})
    elif then_delete:
        render.data(f"{PREFIX}{name!r} is {'deleted from' if is_deleted else 'kept in'} GitLab")
    return 0


def _show(done: Uploaded, wanted: Upload) -> None:
    if done.pull_request:
        render.data(f"{PREFIX}Pull Request created: {done.pull_request}")
    elif done.is_changed:
        render.data(f"{PREFIX}Dataset upload successful")
    else:
        render.data(f"{PREFIX}Dataset upload successful: the Hub has the same file already")
    render.data(f"{done.url}: {done.path_in_repo}, commit {done.commit[:12]}")
    if not done.pull_request:
        at = f" --revision {wanted.revision}" if wanted.revision else ""
        render.data(
            f"download it with: gym dataset download --repo-id {done.repo_id}{at} --artifact {done.path_in_repo} "
            f"--output {done.path_in_repo}"
        )


def _show_plan(wanted: Upload, there: Destination, deleted: str | None, *, as_json: bool) -> None:
    found = "which is new"
    if there.is_same:
        found = "which is already there"
    elif there.file is not None:
        found = f"replacing one of {there.file.size:,} bytes"
    plan = {
        "repository": f"{wanted.repo_id}, {'which exists' if there.exists else 'to be created, private'}",
        "file": f"{wanted.path} as {wanted.path_in_repo}, {found}",
        "branch": f"a pull request against {there.branch}" if wanted.create_pr else there.branch,
        "collection": f"{wanted.collection}, {'which has it' if there.in_collection else 'to be added to'}",
        "gitlab": f"{deleted} is to be deleted" if deleted else "not touched",
    }
    if as_json:
        render.json_data({"schema": 1, "dry_run": True, **plan})
        return
    for remark in there.remarks:
        render.note(remark)
    render.data("\n".join(["nothing was changed; the upload would go to", *(f"{key}: {plan[key]}" for key in plan)]))


def _read_values(overrides: list[str]) -> dict[str, Any]:
    """Return the config of a command: its overrides, and env.yaml."""
    plain: Any = OmegaConf.to_container(parse_config(overrides), resolve=True)
    return dict(plain)


def _add_login(values: dict[str, Any]) -> dict[str, Any]:
    """Add the token of `hf auth login` or HF_TOKEN, where the config has none."""
    if values.get(HF_TOKEN_KEY_NAME):
        return values
    require_client()
    from huggingface_hub import get_token

    token = get_token()
    return {**values, HF_TOKEN_KEY_NAME: token} if token else values
