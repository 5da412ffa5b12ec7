# SPDX-License-Identifier: Apache-2.0
"""What a run has left beside the file that is shown: its plan, in which each task is whole, and its manifest."""

import copy
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from nemo_gym._config.secrets import hide_secrets
from nemo_gym._reports.index import Index, ReportError, open_index
from nemo_gym._reports.row_facts import UNNUMBERED
from nemo_gym._rollouts.manifest import Manifest, read_manifest
from nemo_gym._rollouts.paths import RunFileError, RunPaths

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


_FAILURES = "_failures"
_FIRST_WAIT_S = 0.5
"""How long whoever asks first waits for the plan: most are read by then."""


class RunFiles:
    """The other files of the run that `index` belongs to. The plan is read once the file itself is."""

    def __init__(self, index: Index, user_cache_dir: Path | None = None) -> None:
        self._index, self._cache_dir = index, user_cache_dir
        self.paths = run_paths_of(index.path)
        self._lock = threading.Lock()
        self._plan: Index | None = None
        self._described: tuple[object, RunDescription | None] = (None, None)

    def close(self) -> None:
        if self._plan is not None:
            self._plan.close()

    @property
    def n_planned(self) -> int:
        """How many planned rows are known so far."""
        return self._plan.n_rows if self._plan is not None else 0

    def find_planned(self, row: int) -> int | None:
        """Where the plan has the row that `row` was played from; None if there is no plan, or it is not read so far."""
        columns = self._index.columns
        if self._index.kind not in ("rollouts", "failures") or columns.flags[row] & UNNUMBERED:
            return None
        plan, task = self._open_plan(), columns.task[row]
        if plan is None:
            return None
        # All rows of a task are alike but for their index; in most plans the first of a task stands at its own place.
        planned = plan.columns
        return task if task < planned.n_rows and planned.task[task] == task else plan.find(task)

    def read_planned(self, row: int) -> dict[str, Any] | None:
        """The planned row that `row` was played from, where `find_planned` finds one."""
        found = self.find_planned(row)
        try:
            return None if found is None or self._plan is None else self._plan.read(found)
        except ReportError:  # it is being replaced, as by a run that begins anew
            return None

    def read_manifest(self) -> Manifest | None:
        """The run's own record, as it is now; None if there is none that can be read."""
        try:
            return read_manifest(self.paths.manifest)
        except (RunFileError, OSError):
            return None

    def describe(self) -> RunDescription | None:
        """What the run was, for people."""
        try:
            version = (self.paths.manifest.stat().st_mtime_ns, bool(self._index.n_rows))
        except OSError:
            return None
        if self._described[0] != version:
            manifest = self.read_manifest()
            self._described = (version, describe_run(manifest, self._served_model()) if manifest else None)
        return self._described[1]

    def _served_model(self) -> str | None:
        """The name under which the model answered first."""
        if not self._index.n_rows:
            return None
        try:
            response = self._index.read(0).get("response")
        except ReportError:
            return None
        model = response.get("model") if isinstance(response, dict) else None
        return model if isinstance(model, str) else None

    def _open_plan(self) -> Index | None:
        with self._lock:
            # One file at a time: reading the plan as well would keep the first rows of a large file waiting.
            if self._plan is None and self._index.progress().complete and self.paths.materialized.is_file():
                self._plan = open_index(self.paths.materialized, user_cache_dir=self._cache_dir)
                self._plan.wait(_FIRST_WAIT_S)
            return self._plan


def run_paths_of(path: Path) -> RunPaths:
    """The files of the run that `path` is the rollouts file or the failures file of."""
    if path.stem.endswith(_FAILURES):
        return RunPaths.of(path.with_name(path.stem.removesuffix(_FAILURES) + path.suffix))
    return RunPaths.of(path)
