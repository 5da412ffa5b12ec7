# SPDX-License-Identifier: Apache-2.0
"""A real MLflow server, alone and behind GitLab's routes, and a dataset name in it that is the test's own."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import requests

from nemo_gym._data import gitlab
from nemo_gym._data.gitlab_api import RegistrySettings
from tests.support.gitlab_proxy import TOKEN, Faults, GitlabProxy
from tests.support.mlflow_server import mlflow_server

ROWS = b"".join(b'{"responses_create_params": {"input": "%d"}}\n' % number for number in range(8_000))


@dataclass
class Place:
    """A registry of either flavour, and a dataset name in it that nobody else uses."""

    settings: RegistrySettings
    proxy: GitlabProxy
    folder: Path
    name: str

    @property
    def source(self) -> Path:
        return self.file("train.jsonl", ROWS)

    def file(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def with_rows(self) -> "Place":
        """The same registry, with a dataset that has the rows in version 0.0.1; tests that only read share it."""
        shared = f"Rows-{self.settings.is_gitlab}"
        if self.model(shared) is None:
            self.upload(name=shared)
            self.proxy.requests.clear()
        return replace(self, name=shared)

    def upload(self, version: str = "0.0.1", source: Path | None = None, **more: Any) -> gitlab.UploadedArtifact:
        return gitlab.upload(source or self.source, more.pop("name", self.name), version, self.settings, **more)

    def download(self, version: str = "0.0.1", artifact: str = "train.jsonl", **more: Any) -> Path:
        return gitlab.download(more.pop("name", self.name), version, artifact, self.target, self.settings, **more)

    def delete(self, confirm: Callable[[str], bool] = lambda _: True, name: str | None = None) -> bool:
        return gitlab.delete(name or self.name, self.settings, confirm)

    @property
    def target(self) -> Path:
        return self.folder / "made" / "for" / "it" / "rows.jsonl"

    def left_beside_the_target(self) -> list[str]:
        return sorted(path.name for path in self.target.parent.iterdir()) if self.target.parent.exists() else []

    def model(self, name: str | None = None) -> dict[str, Any] | None:
        """The dataset as the real server has it."""
        return self.proxy.call("GET", "registered-models/get", name=name or self.name)[1].get("registered_model")

    def put(self, path: str, content: bytes) -> None:
        """Add a file to the run of the first version, by its path in a URL."""
        run = self.active_runs()[0]["info"]
        url = self.proxy.file_url(f"{run['experiment_id']}:{run['run_id']}", path)
        requests.put(url, data=content, timeout=500).raise_for_status()

    def active_runs(self) -> list[dict[str, Any]]:
        _, found = self.proxy.call("GET", "experiments/get-by-name", experiment_name=f"[model]{self.name}")
        if "experiment" not in found:
            return []
        return self.proxy.call("POST", "runs/search", experiment_ids=[found["experiment"]["experiment_id"]])[1].get(
            "runs", []
        )


@pytest.fixture(scope="module")
def running_proxy() -> Iterator[GitlabProxy]:
    pytest.importorskip("mlflow")
    with GitlabProxy(mlflow_server()) as running:
        yield running


@pytest.fixture
def proxy(running_proxy: GitlabProxy) -> GitlabProxy:
    running_proxy.faults = Faults()
    running_proxy.requests.clear()
    return running_proxy


@pytest.fixture
def at_gitlab(proxy: GitlabProxy, tmp_path: Path) -> Place:
    settings = RegistrySettings(proxy.uri, TOKEN, pauses_s=(0, 0))
    return Place(settings, proxy, tmp_path, f"Set-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def at_mlflow(proxy: GitlabProxy, tmp_path: Path) -> Place:
    return Place(RegistrySettings(proxy.mlflow, pauses_s=(0, 0)), proxy, tmp_path, f"Set-{uuid.uuid4().hex[:8]}")


@pytest.fixture(params=["at_gitlab", "at_mlflow"])
def place(request: pytest.FixtureRequest) -> Place:
    """Both flavors, one after the other."""
    return request.getfixturevalue(request.param)
