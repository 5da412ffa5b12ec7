# SPDX-License-Identifier: Apache-2.0
"""The block `token_id_capture` of the config: the sink and source that it stands for, and the limit that it sets."""

import importlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, Field, model_validator

from nemo_gym._training.capture.capture_store import require_absolute
from nemo_gym.errors import ConfigError, GymError
from nemo_gym.token_id_capture.delivery import TokenDelivery, installed_token_source
from nemo_gym.token_id_capture.protocols import TokenSink, TokenSource
from nemo_gym.token_id_capture.records import TOKEN_CAPTURE_KEY
from nemo_gym.token_id_capture.store import make_token_store

LOG = logging.getLogger(__name__)


class TokenIdCaptureConfig(BaseModel):
    """The top-level block `token_id_capture`."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool = False
    """Capture for the agents that set `token_id_capture` themselves."""
    all_agents: bool = False
    """Capture for every agent."""
    dir: Path | None = None
    """Absolute path of the folder of the file store; `model_call_capture_dir` where it is not given."""
    sink: str | None = None
    """`module:Class` of your own sink, used instead of the files; see `protocols`."""
    sink_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments for that class."""
    rebuild_response: bool = True
    """Put the captured token ids back on the response of the result row; needs `dir` or `sink`."""
    max_mask_fraction: float | None = Field(default=None, ge=0, le=1)
    """Stop the run when a larger share of its rollouts lacks token ids."""
    mask_fraction_min_samples: int = Field(default=50, ge=1)
    """How many rollouts have to end before `max_mask_fraction` is checked."""

    @model_validator(mode="after")
    def _require_a_usable_place(self) -> Self:
        if self.enabled and self.rebuild_response and self.dir is None and self.sink is None:
            raise ValueError(
                "token_id_capture should rebuild responses, but has neither `dir` nor `sink`.\n"
                "hint: add `++token_id_capture.dir=/absolute/path`, or `++token_id_capture.rebuild_response=false` "
                "where your own code installs a sink"
            )
        if self.dir is not None:
            require_absolute("token_id_capture.dir", self.dir)
        return self

    @classmethod
    def from_global_config(cls, config: Mapping[str, Any] | DictConfig) -> Self:
        """Return the settings in a whole config; capture is off where the block is missing."""
        block: Any = config.get("token_id_capture") or {}
        block = OmegaConf.to_container(block, resolve=True) if OmegaConf.is_config(block) else block
        if isinstance(block, dict) and block.get("dir") is None and config.get("model_call_capture_dir"):
            block = {**block, "dir": config["model_call_capture_dir"]}
        return cls.model_validate(block)


def token_id_capture_enabled_for_agent(config: Mapping[str, Any] | DictConfig, agent_name: str) -> bool:
    """Return whether a whole config captures the token ids of an agent: of all of them, or because it asks for it."""
    settings = TokenIdCaptureConfig.from_global_config(config)
    if not settings.enabled or settings.all_agents:
        return settings.enabled
    types: Any = (config.get(agent_name) or {}).get("responses_api_agents") or {}
    return any((block or {}).get("token_id_capture") is True for block in types.values())


def open_token_delivery(config: TokenIdCaptureConfig) -> TokenDelivery | None:
    """Return how a model server's tokens get to their sink; None if capture is off."""
    return TokenDelivery(open_token_sink(config)) if config.enabled else None


def open_token_sink(config: TokenIdCaptureConfig) -> TokenSink | None:
    """Return the sink that the config names; None if capture is off or the config names none."""
    if not config.enabled or config.sink is None:
        return make_token_store(config)
    sink = _load_class(config.sink)(**config.sink_kwargs)
    if not isinstance(sink, TokenSink):
        raise ConfigError(
            f"token_id_capture.sink {config.sink!r} is not a token sink: it lacks one of put, mark_incomplete, close.\n"
            "hint: all three are coroutines, see nemo_gym.token_id_capture.TokenSink"
        )
    return sink


def open_token_source(config: TokenIdCaptureConfig) -> TokenSource | None:
    """Return where the collector takes tokens from: the installed source, or the other end of the configured sink.

    None if capture is off, or if the sink can only be written: then its owner reads it.
    """
    if not config.enabled:
        return None
    if (installed := installed_token_source()) is not None:
        return installed
    if config.sink is None:
        return make_token_store(config)
    loaded = _load_class(config.sink)
    if all(hasattr(loaded, name) for name in ("freeze", "drop", "close")):
        source: TokenSource = loaded(**config.sink_kwargs)
        return source
    cannot = f"token_id_capture.sink {config.sink!r} is not a token source: it lacks one of freeze, drop, close"
    if config.rebuild_response and "rebuild_response" in config.model_fields_set:
        raise ConfigError(
            f"{cannot}, so responses cannot be rebuilt.\n"
            "hint: add these methods, call `install_token_source`, or set `rebuild_response: false`"
        )
    LOG.warning("%s. Token ids are not put into result rows; they are in the sink alone.", cannot)
    return None


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


class TooManyMaskedSamples(GymError):
    """So many rollouts lack token ids that training on the rest would be a different experiment."""


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
