# SPDX-License-Identifier: Apache-2.0
"""Which registry programs mean. What is done with it is tested in tests/data/test_gitlab.py."""

import pytest
from omegaconf import OmegaConf

from nemo_gym import gitlab_utils
from nemo_gym.config_types import (
    ConfigError,
    DeleteJsonlDatasetGitlabConfig,
    DownloadJsonlDatasetGitlabConfig,
    UploadJsonlDatasetGitlabConfig,
)
from nemo_gym.gitlab_utils import (
    GitlabError,
    RegistrySettings,
    delete_jsonl_dataset,
    download_jsonl_dataset,
    registry_settings,
    upload_jsonl_dataset,
)

URI = "https://gitlab.example.com/api/v4/projects/group%2Fname/ml/mlflow/"


@pytest.mark.parametrize("make", [dict, OmegaConf.create])
def test_the_registry_is_what_the_config_says(make):
    config = make({"mlflow_tracking_uri": URI, "mlflow_tracking_token": "glpat-x"})
    assert registry_settings(config) == RegistrySettings(URI, "glpat-x")


def test_a_config_that_names_no_registry_is_told_how():
    with pytest.raises(ConfigError, match=r"mlflow_tracking_uri is not set.\nhint: put both into env.yaml"):
        registry_settings({"mlflow_tracking_token": "glpat-x"})


def test_a_token_is_not_shown():
    assert "glpat-x" not in repr(RegistrySettings(URI, "glpat-x"))
    assert RegistrySettings("https://me:secret@mlflow.example.com").shown_uri == "https://mlflow.example.com"


@pytest.mark.parametrize(
    ("uri", "is_gitlab"),
    [
        (URI, True),
        ("https://example.com/gitlab/api/v4/projects/1/ml/mlflow", True),
        ("https://mlflow.example.com", False),
        ("https://example.com/api/v4/projects/1", False),
    ],
)
def test_gitlab_is_known_by_its_route(uri: str, is_gitlab: bool):
    assert RegistrySettings(uri).is_gitlab is is_gitlab


def test_without_settings_it_is_the_registry_of_the_global_config(tmp_path, monkeypatch):
    monkeypatch.setattr(gitlab_utils, "get_global_config_dict", lambda: {"mlflow_tracking_uri": "from://the-config"})
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    here = {"dataset_name": "d", "version": "0.0.1"}
    upload = UploadJsonlDatasetGitlabConfig(**here, input_jsonl_fpath=str(rows))
    download = DownloadJsonlDatasetGitlabConfig(**here, artifact_fpath="a", output_fpath=str(tmp_path / "b"))
    for action in (
        lambda: upload_jsonl_dataset(upload),
        lambda: download_jsonl_dataset(download),
        lambda: delete_jsonl_dataset(DeleteJsonlDatasetGitlabConfig(dataset_name="d"), lambda _: True),
    ):
        with pytest.raises(GitlabError, match="'from://the-config', which is not a URL"):
            action()
