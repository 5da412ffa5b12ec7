# SPDX-License-Identifier: Apache-2.0
"""Exporters, against small stand-ins for wandb and mlflow that speak the part of their interface that is used.

The libraries are extras; how a real MLflow takes the same calls is tested with the dataset tools, which install it.
"""

import json
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym import exporters
from nemo_gym.exporters import (
    export_metrics,
    export_rollouts,
    get_exporters,
    sanitised_name,
    setup_exporters,
    teardown_exporters,
)

WANDB = {"wandb_project": "p", "wandb_name": "n", "wandb_api_key": "sk-wandb-value"}
MLFLOW = {
    "mlflow_tracking_uri": "http://tracker",
    "mlflow_tracking_token": "sk-mlflow-value",
    "mlflow_experiment_name": "e",
    "mlflow_run_name": "r",
}
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


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    functions = ["set_tracking_uri", "set_experiment", "start_run", "log_dict", "log_params", "log_metrics"]
    library = FakeLibrary("mlflow", [*functions, "log_text", "set_tag", "end_run"])
    monkeypatch.setitem(sys.modules, "mlflow", library)
    return library


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


def test_mlflow_gets_the_config_flat_parameters_and_a_table_of_rollouts(mlflow: FakeLibrary):
    setup_exporters(OmegaConf.create({**MLFLOW, **SERVERS}))
    export_rollouts([{"reward": 1.0}])
    assert mlflow.of("set_tracking_uri") == [(("http://tracker",), {})]
    assert mlflow.of("start_run") == [((), {"run_name": "r"})]
    (((config, path), _),) = mlflow.of("log_dict")
    assert path == "global_config.json"
    assert config["policy_model"]["responses_api_models"]["m"]["model"] == "x"
    params = mlflow.of("log_params")[0][0][0]
    assert params["policy_model.responses_api_models.m.model"] == "x"
    (((text, table_path), _),) = mlflow.of("log_text")
    assert table_path == "rollouts.json"
    assert json.loads(text) == {"columns": ["Rollout"], "data": [['{"reward":1.0}']]}
    assert json.loads(mlflow.of("set_tag")[0][0][1]) == [{"path": "rollouts.json", "type": "table"}]
    assert os.environ["MLFLOW_TRACKING_TOKEN"] == "sk-mlflow-value"


def test_a_second_export_of_rollouts_does_not_replace_the_first(mlflow: FakeLibrary):
    setup_exporters(MLFLOW)
    export_rollouts([{"a": 1}])
    export_rollouts([{"b": 2}])
    assert [args[1] for args, _ in mlflow.of("log_text")] == ["rollouts.json", "rollouts_2.json"]
    assert len(json.loads(mlflow.of("set_tag")[-1][0][1])) == 2


@pytest.mark.parametrize("library", ["wandb", "mlflow"])
def test_no_secret_is_sent_with_the_config(library: str, request: pytest.FixtureRequest):
    fake: FakeLibrary = request.getfixturevalue(library)
    setup_exporters(OmegaConf.create({**WANDB, **MLFLOW, **SERVERS}))
    sent = repr([call for call in fake.calls if call[0] in ("init", "log_dict", "log_params")])
    assert "policy_model" in sent
    for secret in ("sk-wandb-value", "sk-mlflow-value", "sk-policy-value"):
        assert secret not in sent


def test_setting_up_leaves_the_config_of_the_run_as_it_was(wandb: FakeLibrary):
    config = OmegaConf.create({**WANDB, **SERVERS})
    setup_exporters(config)
    assert config.policy_api_key == "sk-policy-value"


def test_mlflow_gets_finite_numbers_only_and_under_allowed_names(mlflow: FakeLibrary):
    setup_exporters(MLFLOW)
    export_metrics({"pass@1[avg-of-4]/accuracy": 50, "ok": True, "text": "x", "nan": float("nan"), "map": {}}, step=2)
    assert mlflow.of("log_metrics") == [(({"pass_at_1_avg-of-4_/accuracy": 50.0, "ok": 1.0},), {"step": 2})]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("pass@4", "pass_at_4"), ("a/b c.d-e:f_g", "a/b c.d-e:f_g"), ("größe[%]", "gr__e___")],
)
def test_names_are_sanitised(name: str, expected: str):
    assert sanitised_name(name) == expected


def test_many_parameters_are_sent_in_batches(mlflow: FakeLibrary):
    setup_exporters({**MLFLOW, **{f"k{number}": number for number in range(250)}})
    sizes = [len(args[0]) for args, _ in mlflow.of("log_params")]
    assert max(sizes) <= 100
    assert sum(sizes) == 250 + len(MLFLOW)


def test_an_exporter_that_fails_only_warns_and_the_other_still_gets_its_data(
    wandb: FakeLibrary, mlflow: FakeLibrary, caplog: pytest.LogCaptureFixture
):
    setup_exporters({**WANDB, **MLFLOW})
    wandb.broken = {"log", "finish"}
    export_metrics({"reward": 1.0})
    teardown_exporters()
    assert len(mlflow.of("log_metrics")) == 1
    assert "wandb did not take the metrics: RuntimeError: log is down" in caplog.text
    assert "wandb could not be closed" in caplog.text
    assert len(mlflow.of("end_run")) == 1


def test_an_exporter_that_cannot_be_opened_only_warns(mlflow: FakeLibrary, caplog: pytest.LogCaptureFixture):
    mlflow.broken = {"start_run"}
    setup_exporters(MLFLOW)
    assert get_exporters() == []
    assert "the mlflow exporter could not be opened: RuntimeError: start_run is down" in caplog.text


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
