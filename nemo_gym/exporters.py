# SPDX-License-Identifier: Apache-2.0
"""Send metrics and rollouts to Weights & Biases and MLflow, whichever the config names.

An exporter that fails is reported in the log and never stops a run. Their libraries are extras, loaded on set-up.
"""

import logging
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import orjson
from omegaconf import DictConfig, OmegaConf

from nemo_gym.config_types import ExporterConfig, MLFlowConfig, WANDBConfig
from nemo_gym.secret_utils import recursively_hide_secrets

logger = logging.getLogger(__name__)

# What an MLflow server accepts in one request, and as the value of one parameter.
_MLFLOW_BATCH = 100
_MLFLOW_VALUE_LENGTH = 500


class Exporter(Protocol):
    """One place that metrics and rollouts go to."""

    name: str

    def export_metrics(self, metrics: Mapping[str, Any], step: int | None) -> None: ...

    def export_rollouts(self, rollouts: Sequence[Mapping[str, Any]]) -> None: ...

    def close(self) -> None: ...


_EXPORTERS: list[Exporter] = []
_SETTINGS: list[ExporterConfig] = []


def setup_exporters(cfg: DictConfig | Mapping[str, Any]) -> None:
    """Open every exporter that `cfg` has settings for. The same settings again keep what is open."""
    names = [*WANDBConfig.model_fields, *MLFlowConfig.model_fields]
    given = {name: cfg[name] for name in names if cfg.get(name) is not None}
    wandb, mlflow = WANDBConfig.model_validate(given), MLFlowConfig.model_validate(given)
    wanted: list[ExporterConfig] = [config for config in (wandb, mlflow) if config.is_available]
    if wanted == _SETTINGS:
        return
    teardown_exporters()
    _SETTINGS[:] = wanted
    public_config = _without_secrets(cfg)
    if wandb.is_available:
        _open("wandb", lambda: WandbExporter(wandb, public_config))
    if mlflow.is_available:
        _open("mlflow", lambda: MLflowExporter(mlflow, public_config))


def get_exporters() -> list[Exporter]:
    """The exporters that are open."""
    return list(_EXPORTERS)


def export_metrics(metrics: Mapping[str, Any], step: int | None = None) -> None:
    """Send `metrics` to every open exporter."""
    for exporter in _EXPORTERS:
        _warn_on_failure(f"{exporter.name} did not take the metrics", partial(exporter.export_metrics, metrics, step))


def export_rollouts(rollouts: Sequence[Mapping[str, Any]]) -> None:
    """Send `rollouts` to every open exporter."""
    for exporter in _EXPORTERS:
        _warn_on_failure(f"{exporter.name} did not take the rollouts", partial(exporter.export_rollouts, rollouts))


def teardown_exporters() -> None:
    """Finish and forget every open exporter."""
    exporters, _EXPORTERS[:], _SETTINGS[:] = list(_EXPORTERS), [], []
    for exporter in exporters:
        _warn_on_failure(f"{exporter.name} could not be closed", exporter.close)


class WandbExporter:
    """A Weights & Biases run: config, metrics, and a table `Rollouts` with one JSON column."""

    name = "wandb"

    def __init__(self, config: WANDBConfig, public_config: dict[str, Any]) -> None:
        import wandb

        assert config.wandb_api_key is not None, "only opened when available"
        os.environ["WANDB_API_KEY"] = config.wandb_api_key
        self._wandb = wandb
        self._run = wandb.init(project=config.wandb_project, name=config.wandb_name, config=public_config)

    def export_metrics(self, metrics: Mapping[str, Any], step: int | None) -> None:
        self._run.log(dict(metrics), step=step)

    def export_rollouts(self, rollouts: Sequence[Mapping[str, Any]]) -> None:
        table = self._wandb.Table(columns=["Rollout"], data=[[_json(rollout)] for rollout in rollouts])
        self._run.log({"Rollouts": table})

    def close(self) -> None:
        self._run.finish()


class MLflowExporter:
    """An MLflow run: parameters, `global_config.json`, metrics under allowed names, and a table `rollouts.json`."""

    name = "mlflow"

    def __init__(self, config: MLFlowConfig, public_config: dict[str, Any]) -> None:
        import mlflow

        if config.mlflow_tracking_token:
            os.environ["MLFLOW_TRACKING_TOKEN"] = config.mlflow_tracking_token
        mlflow.set_tracking_uri(config.mlflow_tracking_uri)
        mlflow.set_experiment(config.mlflow_experiment_name)
        self._mlflow = mlflow
        self._tables: list[dict[str, str]] = []
        mlflow.start_run(run_name=config.mlflow_run_name)
        mlflow.log_dict(public_config, "global_config.json")
        params = list(_flat_params(public_config).items())
        for start in range(0, len(params), _MLFLOW_BATCH):
            mlflow.log_params(dict(params[start : start + _MLFLOW_BATCH]))

    def export_metrics(self, metrics: Mapping[str, Any], step: int | None) -> None:
        numbers = {
            sanitised_name(name): float(value)
            for name, value in metrics.items()
            if isinstance(value, int | float) and math.isfinite(value)
        }
        if numbers:
            self._mlflow.log_metrics(numbers, step=step)

    def export_rollouts(self, rollouts: Sequence[Mapping[str, Any]]) -> None:
        # The file that mlflow.log_table writes and the UI shows as a table, without the pandas that function needs.
        table = {"columns": ["Rollout"], "data": [[_json(rollout)] for rollout in rollouts]}
        path = "rollouts.json" if not self._tables else f"rollouts_{len(self._tables) + 1}.json"
        self._mlflow.log_text(_json(table), path)
        self._tables.append({"path": path, "type": "table"})
        self._mlflow.set_tag("mlflow.loggedArtifacts", _json(self._tables))

    def close(self) -> None:
        self._mlflow.end_run()


def sanitised_name(name: str) -> str:
    """`name` with only what MLflow allows: `pass@1[avg-of-4]/accuracy` becomes `pass_at_1_avg-of-4_/accuracy`."""
    return re.sub(r"[^A-Za-z0-9_\-. /:]", "_", name.replace("@", "_at_"))


def _open(extra: str, make: Callable[[], Exporter]) -> None:
    try:
        _EXPORTERS.append(make())
    except ImportError as error:
        logger.warning("%s\nhint: pip install 'nemo-gym[%s]'", error, extra)
    except Exception as error:
        # These libraries raise what they like, and a tracker that is down must not keep a run from starting.
        logger.warning("the %s exporter could not be opened: %s: %s", extra, type(error).__name__, error)


def _warn_on_failure(what: str, call: Callable[[], None]) -> None:
    try:
        call()
    except Exception as error:
        # As in _open: a run outlives its tracker.
        logger.warning("%s: %s: %s", what, type(error).__name__, error)


def _without_secrets(cfg: DictConfig | Mapping[str, Any]) -> dict[str, Any]:
    # Interpolations stay as written: resolved, `Bearer ${policy_api_key}` would carry a secret under a harmless name.
    config = OmegaConf.create(OmegaConf.to_container(cfg) if isinstance(cfg, DictConfig) else dict(cfg))
    recursively_hide_secrets(config)
    container = OmegaConf.to_container(config)
    assert isinstance(container, dict), "made from a mapping"
    return {str(key): value for key, value in container.items()}


def _flat_params(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in config.items():
        name = sanitised_name(f"{prefix}{key}")
        if isinstance(value, dict) and value:
            flat.update(_flat_params(value, f"{name}."))
        else:
            flat[name] = str(value)[:_MLFLOW_VALUE_LENGTH]
    return flat


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()
