# SPDX-License-Identifier: Apache-2.0
"""Upload datasets to, and download them from, the model registry of a GitLab project.

`mlflow_tracking_uri` and `mlflow_tracking_token` in the config name the project and authenticate. The registry API is
in `nemo_gym._data.gitlab*`; an MLflow server works as well.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym._data import gitlab
from nemo_gym._data.gitlab import Confirm as Confirm
from nemo_gym._data.gitlab_api import GitlabError as GitlabError, RegistrySettings as RegistrySettings
from nemo_gym._data.resumable import Progress as Progress
from nemo_gym._util.moved_names import find_names
from nemo_gym.config_types import (
    ConfigError,
    DeleteJsonlDatasetGitlabConfig,
    DownloadJsonlDatasetGitlabConfig,
    UploadJsonlDatasetGitlabConfig,
)
from nemo_gym.global_config import get_global_config_dict

LOG = logging.getLogger(__name__)
Notice = Callable[[str], None]
Upload = gitlab.UploadedArtifact


def registry_settings(config: DictConfig | Mapping[str, Any] | None = None) -> RegistrySettings:
    """Return the registry named in a config (by default the global config); raise ConfigError if it names none."""
    found = get_global_config_dict() if config is None else config
    uri = found.get("mlflow_tracking_uri")
    token = found.get("mlflow_tracking_token")
    if not uri:
        raise ConfigError(
            "the config does not say which GitLab project the dataset belongs to: mlflow_tracking_uri is not set.\n"
            "hint: put both into env.yaml, as the model registry page shows under `Using the MLflow client`:\n"
            "  mlflow_tracking_uri: https://gitlab.example.com/api/v4/projects/<project id>/ml/mlflow\n"
            "  mlflow_tracking_token: <a token with the scope api>"
        )
    return RegistrySettings(str(uri), str(token) if token else None)


def upload_jsonl_dataset(
    config: UploadJsonlDatasetGitlabConfig,
    settings: RegistrySettings | None = None,
    notice: Notice = LOG.info,
    *,
    progress: Progress = lambda _, __: None,
    dry_run: bool = False,
) -> Upload:
    """Upload a file as a version of a dataset and read it back; a dry run only checks whether that could work."""
    source = _resolve_under_cwd_or_install(config.input_jsonl_fpath, validator=Path.is_file)
    return gitlab.upload(
        source if source.is_file() else Path(config.input_jsonl_fpath),
        config.dataset_name,
        config.version,
        settings or registry_settings(),
        notice=notice,
        progress=progress,
        dry_run=dry_run,
    )


def download_jsonl_dataset(
    config: DownloadJsonlDatasetGitlabConfig,
    settings: RegistrySettings | None = None,
    *,
    progress: Progress = lambda _, __: None,
) -> Path:
    """Download a file of a dataset version; it is written completely or not at all."""
    return gitlab.download(
        config.dataset_name,
        config.version,
        config.artifact_fpath,
        Path(config.output_fpath),
        settings or registry_settings(),
        progress=progress,
    )


def delete_jsonl_dataset(
    config: DeleteJsonlDatasetGitlabConfig, confirm: Confirm, settings: RegistrySettings | None = None
) -> bool:
    """Delete a dataset and all its versions if `confirm` answers yes; return whether it was deleted."""
    return gitlab.delete(config.dataset_name, settings or registry_settings(), confirm)


if not TYPE_CHECKING:
    __getattr__ = find_names(__name__)
