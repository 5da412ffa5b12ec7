# SPDX-License-Identifier: Apache-2.0
"""The registries that datasets can be fetched from, each as the function that `nemo_gym._data.fetch` asks for."""

from dataclasses import dataclass, field
from functools import partial

from nemo_gym._data import gitlab
from nemo_gym._data.fetch import Fetch
from nemo_gym._data.gitlab_api import RegistrySettings
from nemo_gym._data.hub import Hub
from nemo_gym._data.hub_download import fetch_dataset


@dataclass(frozen=True)
class Credentials:
    """What the registries are asked with, as a config has it."""

    hf_token: str | None = field(default=None, repr=False)
    mlflow_tracking_uri: str | None = None
    mlflow_tracking_token: str | None = field(default=None, repr=False)


def known_fetchers(credentials: Credentials) -> dict[str, Fetch]:
    """By registry, the function that fetches from it; GitLab only where the config says which one."""
    fetchers: dict[str, Fetch] = {"huggingface": partial(fetch_dataset, Hub(credentials.hf_token))}
    if credentials.mlflow_tracking_uri:
        settings = RegistrySettings(credentials.mlflow_tracking_uri, credentials.mlflow_tracking_token)
        fetchers["gitlab"] = gitlab.fetcher(settings)
    return fetchers
