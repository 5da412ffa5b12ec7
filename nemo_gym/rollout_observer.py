# SPDX-License-Identifier: Apache-2.0
"""Puts what was observed of a rollout into its result row: captured model calls, the trajectory, and token ids.

A run whose config turns none of this on has no observer. What is captured, and where, is decided by the model servers
(`nemo_gym.model_call_capture`, `nemo_gym.token_id_capture`).
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from nemo_gym._capture.tokens import FrozenTokens, RestartableTokenSource, TokenSource
from nemo_gym._rollouts.incidents import note_length_of_last_call
from nemo_gym._rollouts.types import Outcome, Row, Scored
from nemo_gym._util.aio import in_thread
from nemo_gym._util.keys import AGENT_REF_KEY_NAME, NG_FAILURE_CLASS_KEY
from nemo_gym.global_config import get_first_server_config_dict
from nemo_gym.model_call_capture import (
    MODEL_CALL_CAPTURE_KEY,
    clear_model_call_captures_for_rollouts,
    merge_model_call_capture_into_record,
    model_call_capture_dirs_from_config,
)
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body
from nemo_gym.rollout_trajectory import attach_trajectory, is_redacted
from nemo_gym.token_id_capture import (
    MASK_SAMPLE_KEY,
    MaskFractionGuard,
    TokenIdCaptureConfig,
    TooManyMaskedSamples,
    merge_token_capture_into_record,
    open_token_source,
)

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class TokenTaking:
    """From where token ids are taken, of which agents, and how many rollouts may lack them."""

    config: TokenIdCaptureConfig
    source: TokenSource
    guard: MaskFractionGuard
    agents: Mapping[str, bool]
    """Whether an agent's own config asks for capture."""

    def is_for(self, row: Row) -> bool:
        return self.config.all_agents or self.agents.get(str((row.get(AGENT_REF_KEY_NAME) or {}).get("name")), False)


class RolloutObserver:
    """Watches the rollouts of one run."""

    def __init__(self, capture_dirs: Sequence[Path], tokens: TokenTaking | None) -> None:
        self._capture_dirs, self._tokens = capture_dirs, tokens

    @classmethod
    def from_global_config(cls, config: Mapping[str, Any] | DictConfig) -> "RolloutObserver | None":
        """As the config of the servers says; None if there is nothing to observe."""
        capture_dirs, tokens = model_call_capture_dirs_from_config(config), _token_taking(config)
        return cls(capture_dirs, tokens) if capture_dirs or tokens is not None else None

    async def begin(self, row: Row) -> None:
        """Forget what an earlier attempt under the same id has left, be it of this run or of another."""
        await in_thread(self._forget, row)

    async def complete(self, outcome: Outcome) -> Outcome:
        """`outcome` with everything that was observed; also one that failed, for that is when it is looked for."""
        return await in_thread(self._completed, outcome)

    def recorded(self, outcome: Outcome) -> str | None:
        """The row is kept, so its tokens need not be kept twice; the reason to stop if too many rows lack them."""
        tokens = self._tokens
        if tokens is None or not tokens.is_for(outcome.row):
            return None
        rollout_id = maybe_rollout_id_from_run_body(outcome.row)
        if rollout_id is not None:
            _drop(tokens.source, rollout_id)
        if not isinstance(outcome, Scored):
            return None
        try:
            tokens.guard.observe(bool(outcome.result.get(MASK_SAMPLE_KEY)))
        except TooManyMaskedSamples as error:
            return str(error)
        return None

    def _forget(self, row: Row) -> None:
        clear_model_call_captures_for_rollouts([row], self._capture_dirs)
        rollout_id = maybe_rollout_id_from_run_body(row)
        tokens = self._tokens
        if tokens is not None and rollout_id is not None and isinstance(tokens.source, RestartableTokenSource):
            tokens.source.restart(rollout_id)

    def _completed(self, outcome: Outcome) -> Outcome:
        record = {**_identity(outcome.row), **(outcome.result or {})}
        if not isinstance(outcome, Scored):
            record.setdefault(NG_FAILURE_CLASS_KEY, outcome.failure.kind)
        rollout_id = maybe_rollout_id_from_run_body(outcome.row)
        if rollout_id is None:
            return outcome
        if self._capture_dirs:
            merge_model_call_capture_into_record(record, self._capture_dirs, include_payloads=not is_redacted(record))
            note_length_of_last_call(record, record[MODEL_CALL_CAPTURE_KEY]["calls"])
            attach_trajectory(outcome.row, record)
        if self._tokens is not None and isinstance(outcome, Scored) and self._tokens.is_for(outcome.row):
            merge_token_capture_into_record(
                record,
                _frozen(self._tokens.source, rollout_id),
                rebuild_response=self._tokens.config.rebuild_response,
            )
        return replace(outcome, result=record)


def _identity(row: Row) -> Row:
    """What a row and its result have in common."""
    return {key: value for key, value in row.items() if key == AGENT_REF_KEY_NAME or key.startswith("_ng_")}


def _frozen(source: TokenSource, rollout_id: str) -> FrozenTokens:
    try:
        return source.freeze(rollout_id)
    except Exception as error:
        # A source may be the user's own class: what it raises costs the sample its tokens, not the run the sample.
        LOG.warning("the tokens of rollout %r could not be taken", rollout_id, exc_info=True)
        return FrozenTokens(rollout_id, [], [f"the tokens could not be taken: {error!r}"])


def _drop(source: TokenSource, rollout_id: str) -> None:
    try:
        source.drop(rollout_id)
    except Exception:
        # As in _frozen: what stays behind costs room, nothing else.
        LOG.warning("the tokens of rollout %r could not be dropped", rollout_id, exc_info=True)


def _token_taking(config: Mapping[str, Any] | DictConfig) -> TokenTaking | None:
    settings = TokenIdCaptureConfig.from_global_config(config)
    source = open_token_source(settings)
    if source is None:
        return None
    known: Any = config
    agents = {
        str(name): bool(get_first_server_config_dict(known, str(name)).get("token_id_capture"))
        for name, block in known.items()
        if isinstance(block, Mapping | DictConfig) and "responses_api_agents" in block
    }
    return TokenTaking(settings, source, MaskFractionGuard(settings), agents)
