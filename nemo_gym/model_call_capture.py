# SPDX-License-Identifier: Apache-2.0
"""Model-call capture: record a rollout's model requests and replies as files and in its result row.

These names can also be imported from `nemo_gym.base_responses_api_model`. Token ids are captured by
`nemo_gym.token_id_capture`.
"""

import importlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from omegaconf import DictConfig
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from nemo_gym._isolation.lent_workers import close_with_app
from nemo_gym._training.capture.call_records import (
    PAYLOAD_FIELDS,
    ModelCallRecord,
    aggregate_model_call_records,
    build_model_call_record,
    extract_token_stats,
)
from nemo_gym._training.capture.capture_middleware import CaptureMiddleware as _CaptureMiddleware
from nemo_gym._training.capture.capture_store import CaptureStore, require_absolute
from nemo_gym._util.row_keys import AGENT_OBSERVATIONS_KEY, MODEL_CALL_CAPTURE_KEY
from nemo_gym.errors import ConfigError
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body

if TYPE_CHECKING:
    from fastapi import FastAPI

    from nemo_gym.rollout_observability import AgentObservationBundle

__all__ = [
    "MODEL_CALL_CAPTURE_KEY",
    "CaptureStore",
    "ModelCallCaptureConfig",
    "ModelCallRecord",
    "_CaptureMiddleware",
    "aggregate_model_call_metrics",
    "aggregate_model_call_records",
    "build_model_call_record",
    "clear_model_call_captures_for_rollouts",
    "extract_token_stats",
    "install_model_call_capture",
    "make_capture_store",
    "merge_model_call_capture_into_record",
    "model_call_capture_dirs_from_config",
    "read_available_model_call_records",
    "read_model_call_records",
]

LOG = logging.getLogger(__name__)

NO_RECORDS = "model_call_capture_no_records"
RECORDS_UNREADABLE = "model_call_capture_records_unreadable"
INCOMPLETE = "model_call_capture_incomplete"
UNREADABLE = "model_call_capture_unreadable"
JOIN_FAILED = "agent_observation_join_failed"
COMPACTION_JOIN_FAILED = "compaction_model_call_join_failed"


# --- where calls are captured -----------------------------------------------------------------------------------------


class ModelCallCaptureConfig(BaseModel):
    """The capture settings among the top-level keys of the config."""

    # `model_call_capture_dir` is a field, not a pydantic name.
    model_config = ConfigDict(protected_namespaces=())

    observability_enabled: bool = False
    """Record every model call that belongs to a rollout."""
    model_call_capture_dir: Path | None = None
    """Absolute path of the folder for captures; required with `observability_enabled`."""

    @model_validator(mode="after")
    def _require_usable_dir(self) -> Self:
        if not self.observability_enabled:
            return self
        if self.model_call_capture_dir is None:
            raise ValueError(
                "observability_enabled is true, but model_call_capture_dir is not set.\n"
                "hint: add `++model_call_capture_dir=/absolute/path`"
            )
        require_absolute("model_call_capture_dir", self.model_call_capture_dir)
        return self

    @classmethod
    def from_global_config(cls, config: Mapping[str, Any] | DictConfig) -> Self:
        """Return the capture settings of a whole config; capture is off if they are missing."""
        return cls.model_validate({name: config[name] for name in cls.model_fields if config.get(name) is not None})


def make_capture_store(config: ModelCallCaptureConfig) -> CaptureStore | None:
    """Open the store that calls are captured into; None if capture is off."""
    if not config.observability_enabled or config.model_call_capture_dir is None:
        return None
    try:
        return CaptureStore(config.model_call_capture_dir)
    except OSError as error:
        raise ConfigError(
            f"model_call_capture_dir {str(config.model_call_capture_dir)!r} cannot be used: {error}\n"
            "hint: name a folder that every server of the run can write to"
        ) from error


def install_model_call_capture(
    app: "FastAPI",
    config: ModelCallCaptureConfig,
    *,
    model_server_name: str | None = None,
    global_config_dict: Mapping[str, Any] | DictConfig | None = None,
) -> None:
    """Make the model server `app` accept the rollout prefix, and capture the calls of rollouts as configured.

    `global_config_dict` says whether token ids are captured too.
    """
    from nemo_gym.token_id_capture import TokenIdCaptureConfig, open_token_delivery

    tokens = open_token_delivery(TokenIdCaptureConfig.from_global_config(global_config_dict or {}))
    if tokens is not None:
        close_with_app(app, tokens.close)
    app.add_middleware(
        _CaptureMiddleware,
        store=make_capture_store(config),
        model_ref=None if model_server_name is None else {"type": "responses_api_models", "name": model_server_name},
        tokens=tokens,
    )


def model_call_capture_dirs_from_config(config: Mapping[str, Any] | DictConfig) -> list[Path]:
    """Return the folders that the servers of `config` capture into; none if capture is off."""
    settings = ModelCallCaptureConfig.from_global_config(config)
    if not settings.observability_enabled or settings.model_call_capture_dir is None:
        return []
    return [settings.model_call_capture_dir]


def clear_model_call_captures_for_rollouts(rows: Iterable[Mapping[str, Any]], dirs: Sequence[Path | str]) -> None:
    """Delete what an earlier attempt at `rows` left in `dirs`."""
    for row in rows:
        rollout_id = maybe_rollout_id_from_run_body(row)
        if rollout_id is not None:
            for folder in dirs:
                CaptureStore(folder).drop(rollout_id)


# --- what was captured ------------------------------------------------------------------------------------------------


def read_model_call_records(store: CaptureStore, rollout_id: str) -> list[ModelCallRecord]:
    """Return the captured calls of a rollout in the order they ended; raise ValueError for an unreadable line."""
    return [build_model_call_record(one, call_index=place) for place, one in enumerate(store.read(rollout_id))]


def read_available_model_call_records(store: CaptureStore, rollout_id: str) -> tuple[list[ModelCallRecord], int]:
    """Return the readable captured calls of a rollout, and how many are unreadable."""
    exchanges, unreadable = store.read_available(rollout_id)
    records: list[ModelCallRecord] = []
    for place, exchange in exchanges:
        try:
            records.append(build_model_call_record(exchange, call_index=place))
        except ValidationError as error:
            LOG.warning("call %d of rollout %r in %s has no known shape: %s", place, rollout_id, store.root, error)
            unreadable += 1
    return records, unreadable


def aggregate_model_call_metrics(store: CaptureStore, rollout_id: str) -> dict[str, Any]:
    """Return the number of captured calls of a rollout and their totals."""
    return aggregate_model_call_records(read_model_call_records(store, rollout_id))


def merge_model_call_capture_into_record(
    record: dict[str, Any], dirs: Sequence[Path | str], *, include_payloads: bool = False
) -> dict[str, Any]:
    """Put the captured calls of a rollout into its result row as `ng_model_call_capture`, and return the row.

    The agent's observations (`ng_agent_observations`) are joined with them. Requests and responses are included only
    with `include_payloads`. A row that names no rollout stays unchanged.
    """
    rollout_id = maybe_rollout_id_from_run_body(record)
    if rollout_id is None or not dirs:
        return record
    calls, gaps = _read_captures(dirs, rollout_id)
    gaps += _join_observations(record, calls)
    block: dict[str, Any] = {
        "rollout_id": rollout_id,
        "metrics": aggregate_model_call_records(calls),
        "calls": [_build_call_row(call, include_payloads=include_payloads) for call in calls],
    }
    if gaps:
        block["gaps"] = gaps
    record[MODEL_CALL_CAPTURE_KEY] = block
    return record


def _read_captures(dirs: Sequence[Path | str], rollout_id: str) -> tuple[list[ModelCallRecord], list[dict[str, Any]]]:
    """Return the calls of a rollout in all `dirs`, and what is known to be missing."""
    calls: list[ModelCallRecord] = []
    gaps: list[dict[str, Any]] = []
    unreadable = 0
    for folder in dirs:
        try:
            store = CaptureStore(folder)
            records, lost = read_available_model_call_records(store, rollout_id)
            calls += records
            unreadable += lost
            if store.is_incomplete(rollout_id):
                gap = {"code": INCOMPLETE}
                if reasons := store.incomplete_reasons(rollout_id):
                    gap["detail"] = "; ".join(reasons)
                gaps.append(gap)
        except OSError as error:
            LOG.warning("the capture of rollout %r in %s cannot be read: %s", rollout_id, folder, error)
            gaps.append({"code": UNREADABLE, "detail": type(error).__name__})
    if unreadable:
        gaps.append({"code": RECORDS_UNREADABLE, "detail": f"count={unreadable}"})
    if not calls and not gaps:
        gaps.append({"code": NO_RECORDS})
    return calls, gaps


def _build_call_row(call: ModelCallRecord, *, include_payloads: bool) -> dict[str, Any]:
    row = call.model_dump(mode="json", exclude=set(PAYLOAD_FIELDS))
    if include_payloads:
        # They are the JSON that was read and may be large, so they are not copied.
        row |= {name: getattr(call, name) for name in PAYLOAD_FIELDS}
    return row


def _join_observations(record: dict[str, Any], calls: Sequence[ModelCallRecord]) -> list[dict[str, Any]]:
    """Resolve the calls that the observations of `record` refer to; return the gap if that fails."""
    if record.get(AGENT_OBSERVATIONS_KEY) is None:
        return []
    # Only the collector joins; model servers do not need these models.
    from nemo_gym.rollout_observability import AgentObservationBundle, join_model_call_observations

    try:
        bundle = AgentObservationBundle.model_validate(record[AGENT_OBSERVATIONS_KEY])
        if bundle.source == "claude_code":
            bundle = _associate_compactions(bundle, calls)
        joined = join_model_call_observations(bundle, calls)
        record[AGENT_OBSERVATIONS_KEY] = joined.model_dump(mode="json")
    except Exception as error:
        # Observations come from third-party agents: bad ones must not cost the rollout.
        LOG.warning("the observations of a rollout could not be joined with its model calls: %s", error)
        return [{"code": JOIN_FAILED, "detail": type(error).__name__}]
    return []


def _associate_compactions(
    bundle: "AgentObservationBundle", calls: Sequence[ModelCallRecord]
) -> "AgentObservationBundle":
    """Let the Claude Code wrapper say which calls wrote its summaries: Claude Code's logs do not name them."""
    from nemo_gym.rollout_observability import ObservationGap

    try:
        agent = importlib.import_module("responses_api_agents.claude_code_agent.observability")
        associated: AgentObservationBundle = agent.associate_claude_code_compaction_calls(bundle, calls)
        return associated
    except Exception as error:
        LOG.warning("the compactions of a rollout could not be joined with its model calls: %s", error)
        gap = ObservationGap(code=COMPACTION_JOIN_FAILED, detail=type(error).__name__)
        return bundle.model_copy(update={"gaps": [*bundle.gaps, gap]})
