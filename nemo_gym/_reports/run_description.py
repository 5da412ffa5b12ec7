# SPDX-License-Identifier: Apache-2.0
"""What a run was, in a few labelled lines: model, environment, dates, settings, versions. Secrets are masked again."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from nemo_gym._config.secrets import hide_secrets
from nemo_gym._rollouts.manifest import Manifest

_MODEL_NAMES = ("openai_model", "model", "model_name", "inference_model", "azure_openai_model")
_COMMIT_LENGTH = 10


@dataclass(frozen=True)
class RunDescription:
    headline: str
    """Model, environment and date, in one line."""
    facts: list[tuple[str, str]]
    config: dict[str, Any]
    """The resolved config, masked."""


def describe_run(manifest: Manifest, served_model: str | None = None) -> RunDescription:
    """`served_model`: the name under which the model answered, which the config may not tell."""
    config, settings = copy.deepcopy(manifest.config), copy.deepcopy(manifest.settings)
    hide_secrets(config)
    hide_secrets(settings)
    model = ", ".join(_models(config, served_model)) or served_model or ""
    environment = ", ".join(name for name, _, _ in _servers(config, "resources_servers"))
    agents = settings.get("agent_name") or ", ".join(name for name, _, _ in _servers(config, "responses_api_agents"))
    facts = [
        ("Model", model),
        ("Environment", environment),
        ("Agent", str(agents)),
        ("Started", _when(manifest)),
        ("Outcome", _outcome(manifest)),
        ("Settings", ", ".join(_settings(settings, config))),
        ("Input", f"{Path(manifest.input.path).name} (sha256 {manifest.input.sha256[:_COMMIT_LENGTH]}…)"),
        ("Versions", f"nemo_gym {manifest.nemo_gym}, Python {manifest.python}"),
        ("Git", _git(manifest)),
    ]
    headline = " · ".join(filter(None, [model, environment, _date(manifest.started_at)]))
    return RunDescription(headline, [(label, text) for label, text in facts if text], config)


def _servers(config: Mapping[str, Any], kind: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The servers of a kind: the name of each, its implementation, and its own settings."""
    for name, block in config.items():
        servers = block.get(kind) if isinstance(block, dict) else None
        for implementation, own in servers.items() if isinstance(servers, dict) else ():
            yield name, implementation, own if isinstance(own, dict) else {}


def _models(config: Mapping[str, Any], served_model: str | None) -> Iterator[str]:
    for place, (name, implementation, own) in enumerate(_servers(config, "responses_api_models")):
        named = next((own[key] for key in _MODEL_NAMES if isinstance(own.get(key), str)), None)
        # Rollouts tell the name of the model that plays, which is the first of the config.
        known = named or (served_model if place == 0 else None)
        yield f"{known} ({implementation})" if known else f"{name} ({implementation})"


def _settings(settings: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    sampling = settings.get("responses_create_params")
    named = {"num_repeats": "repeats", "limit": "limit", "prompt_config": "prompt"}
    yield from (f"{label} {settings[key]}" for key, label in named.items() if settings.get(key) is not None)
    for key, value in sampling.items() if isinstance(sampling, dict) else ():
        if value is not None:
            yield f"{key} {value}"
    if config.get("num_samples_in_parallel") is not None:
        yield f"{config['num_samples_in_parallel']} in parallel"


def _when(manifest: Manifest) -> str:
    began = _date(manifest.started_at)
    if manifest.resumed_at:
        return f"{began}, last resumed {_date(manifest.resumed_at)}"
    start, end = _moment(manifest.started_at), _moment(manifest.ended_at or "")
    return f"{began}, took {_duration((end - start).total_seconds())}" if start and end else began


def _date(text: str) -> str:
    moment = _moment(text)
    return moment.strftime("%Y-%m-%d %H:%M %Z").strip() if moment else text


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _outcome(manifest: Manifest) -> str:
    counts = manifest.counts
    parts = [f"{counts.scored:,} of {counts.requested:,} scored"] if manifest.status != "running" else []
    parts += [f"{counts.failed:,} failed"] if counts.failed else []
    parts += [f"{counts.not_played:,} not played"] if counts.not_played and manifest.status != "running" else []
    return f"{manifest.status}: {', '.join(parts)}" if parts else manifest.status


def _git(manifest: Manifest) -> str:
    if manifest.git is None:
        return "no repository"
    commit = manifest.git.commit[:_COMMIT_LENGTH]
    return f"{commit}, with uncommitted changes" if manifest.git.dirty else commit
