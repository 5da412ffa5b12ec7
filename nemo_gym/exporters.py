# SPDX-License-Identifier: Apache-2.0
"""Send metrics and rollouts to Weights & Biases and MLflow, if the config has settings for them.

An exporter that fails is logged and never stops a run. The libraries are extras, loaded at setup.
"""

import logging
import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import orjson
from omegaconf import DictConfig, OmegaConf

from nemo_gym.config_types import ExporterConfig, MLFlowConfig, WANDBConfig
from nemo_gym.secret_utils import recursively_hide_secrets

if TYPE_CHECKING:
    from nemo_gym._results.aggregate_files import AgentAggregate

logger = logging.getLogger(__name__)

# What an MLflow server accepts in one request (parameters, metrics), and as the value of one parameter.
_MLFLOW_BATCH = 100
_MLFLOW_METRIC_BATCH = 1000
_MLFLOW_VALUE_LENGTH = 500
_MLFLOW_DEFAULTS = {
    # MLflow announces its runs on stdout, which is reserved for a command's results.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # With MLflow's defaults, a tracker that is down would delay the start of a run by more than four minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


class Exporter(Protocol):
    """A destination for metrics and rollouts."""

    name: str

    def export_metrics(self, metrics: Mapping[str, Any], step: int | None) -> None: ...

    def export_rollouts(self, rollouts: Iterable[Mapping[str, Any]]) -> None: ...

    def close(self, failed: bool) -> None:
        """End the run; `failed` means that an error ended it."""


_EXPORTERS: list[Exporter] = []
_SETTINGS: list[ExporterConfig] = []


def setup_exporters(cfg: DictConfig | Mapping[str, Any]) -> None:
    """Open every exporter that `cfg` has settings for. Calling it again with the same settings changes nothing."""
    names = [*WANDBConfig.model_fields, *MLFlowConfig.model_fields]
    given = {name: cfg[name] for name in names if cfg.get(name) is not None}
    wandb = WANDBConfig.model_validate(given)
    mlflow = MLFlowConfig.model_validate(given)
    wanted: list[ExporterConfig] = [config for config in (wandb, mlflow) if config.is_available]
    if wanted == _SETTINGS:
        return
    teardown_exporters()
    _SETTINGS[:] = wanted
    public_config = _hide_secrets(cfg)
    if wandb.is_available:
        _open("wandb", lambda: WandbExporter(wandb, public_config))
    if mlflow.is_available:
        _open("mlflow", lambda: MLflowExporter(mlflow, public_config))


def get_exporters() -> list[Exporter]:
    """Return the open exporters."""
    return list(_EXPORTERS)


def export_metrics(metrics: Mapping[str, Any], step: int | None = None) -> None:
    """Send `metrics` to every open exporter."""
    for exporter in _EXPORTERS:
        _warn_on_failure(f"{exporter.name} did not take the metrics", partial(exporter.export_metrics, metrics, step))


def export_aggregates(aggregates: Iterable["AgentAggregate"]) -> None:
    """Send the metrics of every agent in a run: `<agent>/<metric>` and `key_metrics/<agent>/<metric>`."""
    metrics: dict[str, Any] = {}
    for one in aggregates:
        metrics.update({f"{one.agent}/{name}": value for name, value in one.agent_metrics.items()})
        metrics.update({f"key_metrics/{one.agent}/{name}": value for name, value in one.key_metrics.items()})
    if metrics:
        export_metrics(metrics)


def export_rollouts(rollouts: Iterable[Mapping[str, Any]]) -> None:
    """Send `rollouts` to every open exporter. Each one iterates over them, so do not pass an iterator."""
    for exporter in _EXPORTERS:
        _warn_on_failure(f"{exporter.name} did not take the rollouts", partial(exporter.export_rollouts, rollouts))


def teardown_exporters(*, failed: bool = False) -> None:
    """Finish and forget every open exporter; `failed` means that the run ended with an error."""
    exporters = list(_EXPORTERS)
    _EXPORTERS[:] = []
    _SETTINGS[:] = []
    for exporter in exporters:
        _warn_on_failure(f"{exporter.name} could not be closed", partial(exporter.close, failed))


class WandbExporter:
    """A Weights & Biases run: config, metrics, and a `Rollouts` table with one JSON column."""

    name = "wandb"

    def __init__(self, config: WANDBConfig, public_config: dict[str, Any]) -> None:
        import wandb

        assert config.wandb_api_key is not None, "only opened when available"
        os.environ["WANDB_API_KEY"] = config.wandb_api_key
        self._wandb = wandb
        self._run = wandb.init(project=config.wandb_project, name=config.wandb_name, config=public_config)

    def export_metrics(self, metrics: Mapping[str, Any], step: int | None) -> None:
        self._run.log(dict(metrics), step=step)

    def export_rollouts(self, rollouts: Iterable[Mapping[str, Any]]) -> None:
        table = self._wandb.Table(columns=["Rollout"], data=[[_json(rollout)] for rollout in rollouts])
        self._run.log({"Rollouts": table})

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


class MLflowExporter:
    """An MLflow run: parameters, `global_config.json`, metrics under sanitized names, and a `rollouts.json` table.

    Everything goes through a client and the run id: MLflow's fluent interface keeps one run per thread, and would
    silently start another one for the exporting thread.
    """

    name = "mlflow"

    def __init__(self, config: MLFlowConfig, public_config: dict[str, Any]) -> None:
        for name, value in _MLFLOW_DEFAULTS.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient
        from mlflow.entities import Param

        if config.mlflow_tracking_token:
            os.environ["MLFLOW_TRACKING_TOKEN"] = config.mlflow_tracking_token
        assert config.mlflow_experiment_name is not None, "only opened when available"
        self._client = MlflowClient(tracking_uri=config.mlflow_tracking_uri)
        experiment = self._client.get_experiment_by_name(config.mlflow_experiment_name)
        if experiment is None:
            experiment_id = self._client.create_experiment(config.mlflow_experiment_name)
        else:
            experiment_id = experiment.experiment_id
        self._run_id = self._client.create_run(experiment_id, run_name=config.mlflow_run_name).info.run_id
        self._tables: list[dict[str, str]] = []
        self._client.log_dict(self._run_id, public_config, "global_config.json")
        params = [Param(name, value) for name, value in _flatten_params(public_config).items()]
        for start in range(0, len(params), _MLFLOW_BATCH):
            self._client.log_batch(self._run_id, params=params[start : start + _MLFLOW_BATCH])

    def export_metrics(self, metrics: Mapping[str, Any], step: int | None) -> None:
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        numbers = [
            Metric(sanitize_name(name), float(value), now_ms, step or 0)
            for name, value in metrics.items()
            if isinstance(value, int | float) and math.isfinite(value)
        ]
        for start in range(0, len(numbers), _MLFLOW_METRIC_BATCH):
            self._client.log_batch(self._run_id, metrics=numbers[start : start + _MLFLOW_METRIC_BATCH])

    def export_rollouts(self, rollouts: Iterable[Mapping[str, Any]]) -> None:
        """Write, row by row, the file that mlflow.log_table writes and the UI shows as a table."""
        name = "rollouts.json"
        if self._tables:
            name = f"rollouts_{len(self._tables) + 1}.json"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            with path.open("w", encoding="utf-8") as file:
                file.write('{"columns":["Rollout"],"data":[')
                for number, rollout in enumerate(rollouts):
                    file.write(("," if number else "") + _json([_json(rollout)]))
                file.write("]}")
            self._client.log_artifact(self._run_id, str(path))
        self._tables.append({"path": name, "type": "table"})
        self._client.set_tag(self._run_id, "mlflow.loggedArtifacts", _json(self._tables))

    def close(self, failed: bool) -> None:
        self._client.set_terminated(self._run_id, status="FAILED" if failed else "FINISHED")


def sanitize_name(name: str) -> str:
    """Replace what MLflow forbids in a name: `pass@1[avg-of-4]/accuracy` becomes `pass_at_1_avg-of-4_/accuracy`."""
    return re.sub(r"[^A-Za-z0-9_\-. /:]", "_", name.replace("@", "_at_"))


def _open(extra: str, make: Callable[[], Exporter]) -> None:
    try:
        _EXPORTERS.append(make())
    except ImportError as error:
        logger.warning(
            "the config has settings for %s, which cannot be loaded (%s): nothing will be sent there.\n"
            "hint: pip install 'nemo-gym[%s]'",
            extra,
            error,
            extra,
        )
    except Exception as error:
        # These libraries raise all sorts of errors, and a tracker that is down must not keep a run from starting.
        logger.warning("the %s exporter could not be opened: %s: %s", extra, type(error).__name__, error)


def _warn_on_failure(what: str, call: Callable[[], None]) -> None:
    try:
        call()
    except Exception as error:
        # As in _open: a run must survive its tracker.
        logger.warning("%s: %s: %s", what, type(error).__name__, error)


def _hide_secrets(cfg: DictConfig | Mapping[str, Any]) -> dict[str, Any]:
    # Keep interpolations unresolved: otherwise `Bearer ${policy_api_key}` would leak a secret under a harmless name.
    config = OmegaConf.create(OmegaConf.to_container(cfg) if isinstance(cfg, DictConfig) else dict(cfg))
    recursively_hide_secrets(config)
    container = OmegaConf.to_container(config)
    assert isinstance(container, dict), "made from a mapping"
    return {str(key): value for key, value in container.items()}


def _flatten_params(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in config.items():
        name = sanitize_name(f"{prefix}{key}")
        if isinstance(value, dict) and value:
            flat.update(_flatten_params(value, f"{name}."))
        else:
            flat[name] = str(value)[:_MLFLOW_VALUE_LENGTH]
    return flat


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()
