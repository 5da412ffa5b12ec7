# SPDX-License-Identifier: Apache-2.0
"""Exporters: W&B against a small stand-in that speaks the part of its interface that is used, MLflow against the real
library and a database."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym import exporters
from nemo_gym.exporters import (
    export_metrics,
    export_rollouts,
    get_exporters,
    sanitize_name,
    setup_exporters,
    teardown_exporters,
)
from tests.support.mlflow_store import mlflow_store

# MLflow's own dependencies deprecate each other's functions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

WANDB = {"wandb_project": "p", "wandb_name": "n", "wandb_api_key": "sk-wandb-value"}
SERVERS = {
    "policy_api_key": "sk-policy-value",
    "policy_model": {"responses_api_models": {"m": {"header": "Bearer ${policy_api_key}", "model": "x"}}},
}


class FakeLibrary(ModuleType):
    """Notes every call as (name, args, kwargs); a name in `broken` raises instead."""

    def __init__(self, name: str, functions: list[str]) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.broken: set[str] = set()
        for function in functions:
            setattr(self, function, self._noting(function))

    def _noting(self, function: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((function, args, kwargs))
            if function in self.broken:
                raise RuntimeError(f"{function} is down")
            return self

        return call

    def of(self, function: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(args, kwargs) for name, args, kwargs in self.calls if name == function]


@pytest.fixture(autouse=True)
def clean_slate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN"):
        monkeypatch.setenv(name, "before")
    monkeypatch.setattr(exporters, "_EXPORTERS", [])
    monkeypatch.setattr(exporters, "_SETTINGS", [])
    yield
    teardown_exporters()


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    library = FakeLibrary("wandb", ["init", "log", "finish", "Table"])
    monkeypatch.setitem(sys.modules, "wandb", library)
    return library


class Tracker:
    """What has arrived in an experiment of its own."""

    def __init__(self, store: str, name: str, folder: Path) -> None:
        from mlflow import MlflowClient

        self.settings = {
            "mlflow_tracking_uri": store,
            "mlflow_tracking_token": "sk-mlflow-value",
            "mlflow_experiment_name": name,
            "mlflow_run_name": "r",
        }
        self.client = MlflowClient(tracking_uri=store)
        self._experiment = self.client.create_experiment(name, artifact_location=str(folder))
        self._folder = folder

    @property
    def run(self) -> Any:
        (run,) = self.client.search_runs([self._experiment])
        return run

    def artifact(self, name: str) -> Any:
        return json.loads((self._folder / self.run.info.run_id / "artifacts" / name).read_text())


@pytest.fixture
def mlflow(request: pytest.FixtureRequest, tmp_path: Path) -> Tracker:
    pytest.importorskip("mlflow")
    return Tracker(mlflow_store(), request.node.name, tmp_path)


def test_without_settings_there_is_nothing_to_export_to():
    setup_exporters(OmegaConf.create(SERVERS))
    export_metrics({"reward": 1.0})
    export_rollouts([{"reward": 1.0}])
    assert get_exporters() == []


def test_half_of_the_settings_open_nothing(wandb: FakeLibrary):
    setup_exporters({"wandb_project": "p", "wandb_name": "n"})
    assert get_exporters() == []
    assert wandb.calls == []


def test_wandb_gets_the_config_the_metrics_and_a_table_of_rollouts(wandb: FakeLibrary):
    setup_exporters(OmegaConf.create({**WANDB, **SERVERS}))
    export_metrics({"mean/reward": 0.5}, step=3)
    export_rollouts([{"reward": 1.0}, {"reward": 0.0}])
    ((_, init),) = wandb.of("init")
    assert (init["project"], init["name"]) == ("p", "n")
    assert wandb.of("log")[0] == (({"mean/reward": 0.5},), {"step": 3})
    ((_, table),) = wandb.of("Table")
    assert table == {"columns": ["Rollout"], "data": [['{"reward":1.0}'], ['{"reward":0.0}']]}
    assert list(wandb.of("log")[1][0][0]) == ["Rollouts"]
    assert os.environ["WANDB_API_KEY"] == "sk-wandb-value"
    teardown_exporters()
    assert len(wandb.of("finish")) == 1


@pytest.mark.slow
def test_mlflow_gets_the_config_flat_parameters_and_a_table_of_rollouts(mlflow: Tracker):
    setup_exporters(OmegaConf.create({**mlflow.settings, **SERVERS}))
    export_rollouts([{"reward": 1.0}])
    teardown_exporters()
    assert (mlflow.run.info.run_name, mlflow.run.info.status) == ("r", "FINISHED")
    assert mlflow.artifact("global_config.json")["policy_model"]["responses_api_models"]["m"]["model"] == "x"
    assert mlflow.run.data.params["policy_model.responses_api_models.m.model"] == "x"
    assert mlflow.artifact("rollouts.json") == {"columns": ["Rollout"], "data": [['{"reward":1.0}']]}
    assert json.loads(mlflow.run.data.tags["mlflow.loggedArtifacts"]) == [{"path": "rollouts.json", "type": "table"}]
    assert os.environ["MLFLOW_TRACKING_TOKEN"] == "sk-mlflow-value"


@pytest.mark.slow
def test_what_another_thread_exports_goes_to_the_same_run(mlflow: Tracker):
    setup_exporters(mlflow.settings)
    thread = threading.Thread(target=export_metrics, args=({"mean/reward": 0.5},))
    thread.start()
    thread.join()
    teardown_exporters(failed=True)
    assert mlflow.run.data.metrics == {"mean/reward": 0.5}
    assert mlflow.run.info.status == "FAILED"


@pytest.mark.slow
def test_a_second_export_of_rollouts_does_not_replace_the_first(mlflow: Tracker):
    setup_exporters(mlflow.settings)
    export_rollouts([{"a": 1}])
    export_rollouts([{"b": 2}, {"c": 3}])
    assert len(mlflow.artifact("rollouts.json")["data"]) == 1
    assert len(mlflow.artifact("rollouts_2.json")["data"]) == 2


def test_no_secret_is_sent_with_the_config_to_wandb(wandb: FakeLibrary):
    setup_exporters(OmegaConf.create({**WANDB, **SERVERS}))
    sent = repr(wandb.of("init"))
    assert "policy_model" in sent
    assert "sk-wandb-value" not in sent
    assert "sk-policy-value" not in sent


@pytest.mark.slow
def test_no_secret_is_sent_with_the_config_to_mlflow(mlflow: Tracker):
    setup_exporters(OmegaConf.create({**mlflow.settings, **SERVERS}))
    sent = repr([mlflow.run.data.params, mlflow.artifact("global_config.json")])
    assert "policy_model" in sent
    assert "sk-mlflow-value" not in sent
    assert "sk-policy-value" not in sent


def test_setting_up_leaves_the_config_of_the_run_as_it_was(wandb: FakeLibrary):
    config = OmegaConf.create({**WANDB, **SERVERS})
    setup_exporters(config)
    assert config.policy_api_key == "sk-policy-value"


@pytest.mark.slow
def test_mlflow_gets_finite_numbers_only_and_under_allowed_names(mlflow: Tracker):
    setup_exporters(mlflow.settings)
    export_metrics({"pass@1[avg-of-4]/accuracy": 50, "ok": True, "text": "x", "nan": float("nan"), "map": {}}, step=2)
    assert mlflow.run.data.metrics == {"pass_at_1_avg-of-4_/accuracy": 50.0, "ok": 1.0}
    history = mlflow.client.get_metric_history(mlflow.run.info.run_id, "ok")
    assert [point.step for point in history] == [2]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("pass@4", "pass_at_4"), ("a/b c.d-e:f_g", "a/b c.d-e:f_g"), ("größe[%]", "gr__e___")],
)
def test_names_are_sanitized(name: str, expected: str):
    assert sanitize_name(name) == expected


@pytest.mark.slow
def test_more_parameters_than_one_request_may_hold_all_arrive(mlflow: Tracker):
    setup_exporters({**mlflow.settings, **{f"k{number}": number for number in range(250)}})
    assert len(mlflow.run.data.params) == 250 + len(mlflow.settings)


@pytest.mark.slow
def test_an_exporter_that_fails_only_warns_and_the_other_still_gets_its_data(
    wandb: FakeLibrary, mlflow: Tracker, caplog: pytest.LogCaptureFixture
):
    setup_exporters({**WANDB, **mlflow.settings})
    wandb.broken = {"log", "finish"}
    export_metrics({"reward": 1.0})
    teardown_exporters()
    assert mlflow.run.data.metrics == {"reward": 1.0}
    assert "wandb did not take the metrics: RuntimeError: log is down" in caplog.text
    assert "wandb could not be closed" in caplog.text
    assert mlflow.run.info.status == "FINISHED"


@pytest.mark.slow
def test_an_exporter_that_cannot_be_opened_only_warns(caplog: pytest.LogCaptureFixture):
    pytest.importorskip("mlflow")
    setup_exporters({"mlflow_tracking_uri": "nonsense://x", "mlflow_experiment_name": "e", "mlflow_run_name": "r"})
    assert get_exporters() == []
    assert "the mlflow exporter could not be opened" in caplog.text


def test_a_library_that_is_missing_is_named_with_the_extra_that_has_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setitem(sys.modules, "wandb", None)
    setup_exporters(WANDB)
    assert get_exporters() == []
    assert "pip install 'nemo-gym[wandb]'" in caplog.text


def test_the_same_settings_again_keep_the_open_run_and_others_start_a_new_one(wandb: FakeLibrary):
    setup_exporters(WANDB)
    setup_exporters({**WANDB, "limit": 3})
    assert len(wandb.of("init")) == 1
    setup_exporters({**WANDB, "wandb_name": "other"})
    assert (len(wandb.of("init")), len(wandb.of("finish"))) == (2, 1)
