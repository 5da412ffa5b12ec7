# SPDX-License-Identifier: Apache-2.0
"""Token-id capture: model servers put the token ids and log-probs of a rollout aside, the collector takes them up.

This keeps long arrays out of every hop between servers. Which calls are captured is said by their URL
(`nemo_gym._util.rollout_paths`); how an answer is read, by `nemo_gym._capture.payloads`.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, Field, model_validator

from nemo_gym._capture.payloads import OPTIONAL_TOKEN_FIELDS, TOKEN_FIELDS, item_keys
from nemo_gym._capture.tokens import FileTokenStore, FrozenTokens, TokenSink, TokenSource
from nemo_gym.errors import ConfigError, GymError

__all__ = [
    "MASK_SAMPLE_KEY",
    "TOKEN_CAPTURE_KEY",
    "FileTokenStore",
    "FrozenTokens",
    "MaskFractionGuard",
    "TokenIdCaptureConfig",
    "TokenSink",
    "TokenSource",
    "TooManyMaskedSamples",
    "merge_token_capture_into_record",
    "open_token_sink",
    "open_token_source",
]

TOKEN_CAPTURE_KEY = "_ng_token_capture"
MASK_SAMPLE_KEY = "mask_sample"


class TooManyMaskedSamples(GymError):
    """So many rollouts lack token ids that training on the rest would be a different experiment."""


class TokenIdCaptureConfig(BaseModel):
    """The top-level block `token_id_capture`."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool = False
    """Capture for the agents that set `token_id_capture` themselves."""
    all_agents: bool = False
    """Capture for every agent."""
    dir: Path | None = None
    """Absolute path of the folder of the file store; not needed with a `sink` of one's own."""
    sink: str | None = None
    """`module:Class` of a store of one's own instead of the files."""
    sink_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments for that class."""
    rebuild_response: bool = True
    """Put the captured token ids back on the response of the result row."""
    max_mask_fraction: float | None = Field(default=None, ge=0, le=1)
    """Stop the run when a larger share of its rollouts lacks token ids."""
    mask_fraction_min_samples: int = Field(default=50, ge=1)
    """How many rollouts have to be seen before `max_mask_fraction` is looked at."""

    @model_validator(mode="after")
    def _has_a_place_to_write(self) -> Self:
        if self.enabled and self.dir is None and self.sink is None:
            raise ValueError(
                "token_id_capture is enabled, but has neither `dir` nor `sink`.\n"
                "hint: add `++token_id_capture.dir=/absolute/path`"
            )
        if self.dir is not None and not self.dir.is_absolute():
            raise ValueError(
                f"token_id_capture.dir must be an absolute path, got {str(self.dir)!r}.\n"
                "hint: servers run in folders of their own, so a relative path would mean a different one to each"
            )
        return self

    @classmethod
    def from_global_config(cls, config: Mapping[str, Any] | DictConfig) -> Self:
        """The settings in a whole config; capture is off where the block is missing."""
        block = config.get("token_id_capture") or {}
        return cls.model_validate(OmegaConf.to_container(block, resolve=True) if OmegaConf.is_config(block) else block)


def open_token_sink(config: TokenIdCaptureConfig) -> TokenSink | None:
    """Where a model server puts tokens; None if capture is off."""
    store = _open_store(config)
    if store is not None and not isinstance(store, TokenSink):
        raise ConfigError(_lacks_methods(config.sink, "put, mark_incomplete, close"))
    return store


def open_token_source(config: TokenIdCaptureConfig) -> TokenSource | None:
    """Where the collector takes tokens from; None if capture is off."""
    store = _open_store(config)
    if store is not None and not isinstance(store, TokenSource):
        raise ConfigError(_lacks_methods(config.sink, "freeze, drop, close"))
    return store


def merge_token_capture_into_record(
    record: dict[str, Any], tokens: FrozenTokens, *, rebuild_response: bool = True
) -> dict[str, Any]:
    """Put a rollout's tokens into its result row; `mask_sample` says that it must not be trained on."""
    record[TOKEN_CAPTURE_KEY] = {
        "rollout_id": tokens.rollout_id,
        "records": tokens.records,
        "incomplete_reasons": tokens.incomplete_reasons,
    }
    rebuilt = not rebuild_response or _put_tokens_back(record.get("response"), tokens.records)
    record[MASK_SAMPLE_KEY] = not (tokens.complete and rebuilt)
    return record


class MaskFractionGuard:
    """Watches how many samples of a run are masked."""

    def __init__(self, config: TokenIdCaptureConfig) -> None:
        self.config = config
        self.samples = 0
        self.masked = 0

    def observe(self, masked: bool) -> None:
        """Count one sample; raises TooManyMaskedSamples once the share is above what the config allows."""
        self.samples += 1
        self.masked += masked
        limit = self.config.max_mask_fraction
        if limit is None or self.samples < self.config.mask_fraction_min_samples:
            return
        if self.masked > limit * self.samples:
            raise TooManyMaskedSamples(
                f"{self.masked} of {self.samples} rollouts lack token ids; max_mask_fraction is {limit}.\n"
                f"hint: look at {TOKEN_CAPTURE_KEY!r} in the results for the reasons"
            )


def _open_store(config: TokenIdCaptureConfig) -> object | None:
    if not config.enabled:
        return None
    if config.sink is not None:
        store: object = _load_class(config.sink)(**config.sink_kwargs)
        return store
    assert config.dir is not None, "validated by TokenIdCaptureConfig"
    return FileTokenStore(config.dir)


def _load_class(spec: str) -> Any:
    module_name, separator, class_name = spec.partition(":")
    if not (module_name and separator and class_name):
        raise ConfigError(f"token_id_capture.sink is {spec!r}.\nhint: write it as `module.path:ClassName`")
    try:
        return getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"token_id_capture.sink {spec!r} cannot be loaded: {error}\n"
            "hint: the module has to be importable in the environment of every model server"
        ) from error


def _lacks_methods(sink: str | None, methods: str) -> str:
    return f"token_id_capture.sink {sink!r} does not offer all of: {methods}"


def _put_tokens_back(response: Any, records: list[dict[str, Any]]) -> bool:
    """Give each captured item of `response` its tokens, in order; False if one of them is not there."""
    output = response.get("output") if isinstance(response, dict) else None
    items = iter([item for item in output if isinstance(item, dict)] if isinstance(output, list) else [])
    for record in records:
        keys = set(record.get("item_keys", ()))
        item = next((item for item in items if keys & item_keys(item)), None)
        if item is None:
            return False
        item.update({name: record[name] for name in (*TOKEN_FIELDS, *OPTIONAL_TOKEN_FIELDS) if name in record})
    return True
