# SPDX-License-Identifier: Apache-2.0
"""Model-call capture: what was asked of a model and answered during a rollout, as files and as part of a result row.

The names here are also importable from `nemo_gym.base_responses_api_model`. Token ids are a matter of
`nemo_gym.token_id_capture`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from omegaconf import DictConfig
from pydantic import BaseModel, ConfigDict, model_validator

from nemo_gym._capture.asgi import CaptureMiddleware as _CaptureMiddleware
from nemo_gym._capture.metrics import MODEL_CALL_CAPTURE_KEY, aggregate, result_block
from nemo_gym._capture.records import ModelCallRecord, RolloutCapture
from nemo_gym._capture.store import CaptureStore
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body

__all__ = [
    "MODEL_CALL_CAPTURE_KEY",
    "CaptureStore",
    "ModelCallCaptureConfig",
    "ModelCallRecord",
    "RolloutCapture",
    "_CaptureMiddleware",
    "aggregate_model_call_metrics",
    "merge_model_call_capture_into_record",
    "read_model_call_records",
]


class ModelCallCaptureConfig(BaseModel):
    """The capture settings among the top-level keys of the config."""

    # `model_call_capture_dir` is a field, not one of pydantic's own names.
    model_config = ConfigDict(protected_namespaces=())

    observability_enabled: bool = False
    """Record every model call that belongs to a rollout."""
    model_call_capture_dir: Path | None = None
    """Absolute path of the folder for the captures; required when `observability_enabled`."""

    @model_validator(mode="after")
    def _dir_is_usable(self) -> Self:
        if self.model_call_capture_dir is None:
            if self.observability_enabled:
                raise ValueError(
                    "observability_enabled is true, but model_call_capture_dir is not set.\n"
                    "hint: add `++model_call_capture_dir=/absolute/path`"
                )
        elif not self.model_call_capture_dir.is_absolute():
            raise ValueError(
                f"model_call_capture_dir must be an absolute path, got {str(self.model_call_capture_dir)!r}.\n"
                "hint: servers run in folders of their own, so a relative path would mean a different one to each"
            )
        return self

    @classmethod
    def from_global_config(cls, config: Mapping[str, Any] | DictConfig) -> Self:
        """The settings in a whole config; capture is off where they are missing."""
        return cls.model_validate({name: config[name] for name in cls.model_fields if config.get(name) is not None})

    def open_store(self) -> CaptureStore | None:
        """The store to capture into; None if capture is off."""
        if not self.observability_enabled or self.model_call_capture_dir is None:
            return None
        return CaptureStore(self.model_call_capture_dir)


def read_model_call_records(captures: CaptureStore | Path | str, rollout_id: str) -> list[ModelCallRecord]:
    """The captured calls of one rollout in the order in which they started; empty if there are none."""
    return _as_store(captures).read(rollout_id).calls


def aggregate_model_call_metrics(records: Sequence[ModelCallRecord]) -> dict[str, Any]:
    """Counts, latencies and token totals over `records`. A number that no call reported is None."""
    return aggregate(records)


def merge_model_call_capture_into_record(
    record: dict[str, Any], captures: CaptureStore | Path | str, rollout_id: str | None = None
) -> dict[str, Any]:
    """Put the rollout's capture into its result row as `ng_model_call_capture` and return the row.

    Without `rollout_id` it is taken from the row; a row that has none is left as it is.
    """
    rollout_id = rollout_id or maybe_rollout_id_from_run_body(record)
    if rollout_id is not None:
        record[MODEL_CALL_CAPTURE_KEY] = result_block(_as_store(captures).read(rollout_id))
    return record


def _as_store(captures: CaptureStore | Path | str) -> CaptureStore:
    return captures if isinstance(captures, CaptureStore) else CaptureStore(captures)
