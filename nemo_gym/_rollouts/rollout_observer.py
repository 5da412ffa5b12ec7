# SPDX-License-Identifier: Apache-2.0
"""Puts what was observed of a rollout into its result row: captured model calls, the trajectory, and token ids.

A run whose config turns none of this on has no observer. What is captured, and where, is decided by the model servers
(`nemo_gym.model_call_capture`, `nemo_gym.token_id_capture`).
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from nemo_gym._rollouts.incidents import note_length_of_last_call
from nemo_gym._rollouts.outcomes import Outcome, Row, Scored
from nemo_gym._rollouts.rollout_trajectory import attach_trajectory, is_redacted
from nemo_gym._util.known_secrets import describe_error
from nemo_gym._util.row_keys import (
    AGENT_REF_KEY_NAME,
    BOOKKEEPING_PREFIX,
    CARRIED_KEYS,
    ENDING_KEYS,
    NG_FAILURE_CLASS_KEY,
)
from nemo_gym.global_config import get_first_server_config_dict
from nemo_gym.model_call_capture import (
    MODEL_CALL_CAPTURE_KEY,
    clear_model_call_captures_for_rollouts,
    merge_model_call_capture_into_record,
    model_call_capture_dirs_from_config,
)
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body
from nemo_gym.token_id_capture import (
    MASK_SAMPLE_KEY,
    MaskFractionGuard,
    RestartableTokenSource,
    TokenCaptureSnapshot,
    TokenIdCaptureConfig,
    TokenSource,
    TooManyMaskedSamples,
    installed_token_source,
    merge_token_capture_into_record,
    open_token_source,
)

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class TokenTaking:
    """Where token ids are taken from, for which agents, and how many rollouts may lack them."""

    config: TokenIdCaptureConfig
    source: TokenSource
    guard: MaskFractionGuard
    agents: Mapping[str, bool]
    """Whether an agent's own config asks for capture."""

    def is_for(self, row: Row) -> bool:
        return self.config.all_agents or self.agents.get(str((row.get(AGENT_REF_KEY_NAME) or {}).get("name")), False)

    async def freeze(self, rollout_id: str) -> TokenCaptureSnapshot:
        """Take the tokens of a rollout; if the source fails, the run keeps the sample without its tokens."""
        try:
            return await self.source.freeze(rollout_id)
        except Exception as error:
            LOG.warning("the tokens of rollout %r could not be taken", rollout_id, exc_info=True)
            reason = f"the tokens could not be taken: {describe_error(error)}"
            return TokenCaptureSnapshot(rollout_id, incomplete=True, incomplete_reasons=[reason])

    async def drop(self, rollout_id: str, snapshot_id: str, version: int) -> None:
        """Delete tokens that a row holds, or that belong to a failure; if that fails, they only take up space."""
        try:
            if not await self.source.drop(rollout_id, snapshot_id=snapshot_id, version=version):
                LOG.warning("the tokens of rollout %r are kept: its source holds more than was taken", rollout_id)
        except Exception:
            LOG.warning("the tokens of rollout %r could not be dropped", rollout_id, exc_info=True)


class RolloutObserver:
    """Watches the rollouts of one run."""

    def __init__(self, capture_dirs: Sequence[Path], tokens: TokenTaking | None) -> None:
        self._capture_dirs = capture_dirs
        self._tokens = tokens
        self._snapshots: dict[str, tuple[str, int]] = {}
        """The id and version of what was taken for rows that are not recorded yet."""

    @classmethod
    def from_global_config(cls, config: Mapping[str, Any] | DictConfig) -> "RolloutObserver | None":
        """Make the observer that the config of the servers asks for; None if there is nothing to observe."""
        capture_dirs = model_call_capture_dirs_from_config(config)
        tokens = _open_token_taking(config)
        return cls(capture_dirs, tokens) if capture_dirs or tokens is not None else None

    async def begin(self, row: Row) -> None:
        """Forget what an earlier attempt with the same id left behind, in this run or another."""
        await asyncio.to_thread(clear_model_call_captures_for_rollouts, [row], self._capture_dirs)
        rollout_id = maybe_rollout_id_from_run_body(row)
        tokens = self._tokens
        if tokens is not None and rollout_id is not None and isinstance(tokens.source, RestartableTokenSource):
            await tokens.source.restart(rollout_id)

    async def complete(self, outcome: Outcome) -> Outcome:
        """Return `outcome` with everything that was observed, even if it failed: that is when people look for it."""
        rollout_id = maybe_rollout_id_from_run_body(outcome.row)
        tokens = None
        wants_tokens = self._tokens is not None and isinstance(outcome, Scored) and self._tokens.is_for(outcome.row)
        if self._tokens is not None and wants_tokens and rollout_id is not None:
            tokens = await self._tokens.freeze(rollout_id)
            self._snapshots[rollout_id] = (tokens.snapshot_id, tokens.version)
        return await asyncio.to_thread(self._add_observations, outcome, tokens)

    async def note_recorded(self, outcome: Outcome) -> str | None:
        """Drop the tokens that the recorded row holds; return the reason to stop if too many rows lack them."""
        tokens = self._tokens
        if tokens is None or not tokens.is_for(outcome.row):
            return None
        rollout_id = maybe_rollout_id_from_run_body(outcome.row)
        if rollout_id is not None:
            taken = self._snapshots.pop(rollout_id, None)
            if taken is None:
                failed = await tokens.freeze(rollout_id)
                taken = (failed.snapshot_id, failed.version)
            await tokens.drop(rollout_id, *taken)
        if not isinstance(outcome, Scored):
            return None
        try:
            tokens.guard.observe(bool(outcome.result.get(MASK_SAMPLE_KEY)))
        except TooManyMaskedSamples as error:
            return str(error)
        return None

    async def aclose(self) -> None:
        """Close the token source, unless it was installed: then its owner closes it."""
        if self._tokens is None or self._tokens.source is installed_token_source():
            return
        try:
            await self._tokens.source.close()
        except Exception:
            LOG.warning("the token source could not be closed", exc_info=True)

    def _add_observations(self, outcome: Outcome, tokens: TokenCaptureSnapshot | None) -> Outcome:
        record = {**_pick_bookkeeping(outcome.row), **(outcome.result or {})}
        if not isinstance(outcome, Scored):
            record.setdefault(NG_FAILURE_CLASS_KEY, outcome.failure.kind)
        rollout_id = maybe_rollout_id_from_run_body(outcome.row)
        if rollout_id is None:
            return outcome
        if self._capture_dirs:
            merge_model_call_capture_into_record(record, self._capture_dirs, include_payloads=not is_redacted(record))
            note_length_of_last_call(record, record[MODEL_CALL_CAPTURE_KEY]["calls"])
            attach_trajectory(outcome.row, record)
        if self._tokens is not None and tokens is not None:
            merge_token_capture_into_record(record, tokens, rebuild_response=self._tokens.config.rebuild_response)
        return replace(outcome, result=record)


def _pick_bookkeeping(row: Row) -> Row:
    """Return what a result takes over from its row: users put their own bookkeeping next to ours.

    If a row says how a rollout ended, that was an earlier rollout, and it must not end this one.
    """
    return {
        key: value
        for key, value in row.items()
        if key in CARRIED_KEYS or (key.startswith(BOOKKEEPING_PREFIX) and key not in ENDING_KEYS)
    }


def _open_token_taking(config: Mapping[str, Any] | DictConfig) -> TokenTaking | None:
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
