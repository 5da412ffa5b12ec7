# SPDX-License-Identifier: Apache-2.0
"""The other files of a file's run: its plan, which has each task in full, its failures, its manifest.

The manifest is described for people in a few labeled lines: model, environment, dates, settings, versions. Secrets are
masked again.
"""

import copy
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from nemo_gym._config.secret_lookup import hide_secrets
from nemo_gym._rollouts.run_manifest import Manifest, read_manifest
from nemo_gym._rollouts.run_paths import RunFileError, RunPaths
from nemo_gym._util.json_shapes import as_mapping, as_text
from nemo_gym._viewer.files.file_index import Index, ReportError, open_index
from nemo_gym._viewer.files.row_facts import UNNUMBERED

_FAILURES = "_failures"
_FIRST_WAIT_S = 0.5
"""How long the first caller waits for the plan: most plans are read by then."""
_MODEL_KEYS = ("openai_model", "model", "model_name", "inference_model", "azure_openai_model")
_DIGEST_LENGTH = 10


@dataclass(frozen=True)
class RunDescription:
    """A run, described for people."""

    headline: str
    """Model, environment and date, in one line."""
    facts: list[tuple[str, str]]
    config: dict[str, Any]
    """The resolved config, masked."""


class RunFiles:
    """The other files of the run that `index` belongs to. The plan is read after the file itself."""

    def __init__(self, index: Index, user_cache_dir: Path | None = None) -> None:
        self._index = index
        self._cache_dir = user_cache_dir
        self.paths = find_run_paths(index.path)
        self._lock = threading.Lock()
        self._plan: Index | None = None
        self._description: tuple[object, RunDescription | None] = (None, None)

    def close(self) -> None:
        if self._plan is not None:
            self._plan.close()

    @property
    def n_planned(self) -> int:
        """How many planned rows are known so far."""
        return self._plan.n_rows if self._plan is not None else 0

    def find_metrics_time(self) -> int:
        """Return when the run wrote its metrics, in nanoseconds since 1970; 0 if it has not."""
        try:
            return self.paths.aggregate_metrics.stat().st_mtime_ns
        except OSError:
            return 0

    def find_planned(self, row: int) -> int | None:
        """Return the position in the plan of the row behind `row`; None without a plan, or before it is read."""
        columns = self._index.columns
        if self._index.kind not in ("rollouts", "failures") or columns.flags[row] & UNNUMBERED:
            return None
        plan = self._open_plan()
        if plan is None:
            return None
        # A task's rows are alike except for their index; in most plans a task's first row stands at its own index.
        task = columns.task[row]
        if task < plan.n_rows and plan.columns.task[task] == task:
            return task
        return plan.find_row(task)

    def read_planned(self, row: int) -> dict[str, Any] | None:
        """Read the planned row behind `row`, if `find_planned` finds one."""
        found = self.find_planned(row)
        try:
            return None if found is None or self._plan is None else self._plan.read_row(found)
        except ReportError:  # it is being replaced, for example by a run that starts over
            return None

    def read_manifest(self) -> Manifest | None:
        """Read the run's current record; None if there is none that can be read."""
        try:
            return read_manifest(self.paths.manifest)
        except (RunFileError, OSError):
            return None

    def describe(self) -> RunDescription | None:
        """Describe the run; None if it left no record."""
        try:
            version = (self.paths.manifest.stat().st_mtime_ns, bool(self._index.n_rows))
        except OSError:
            return None
        if self._description[0] != version:
            description = None
            if manifest := self.read_manifest():
                description = describe_run(manifest, self._read_model_name())
            self._description = (version, description)
        return self._description[1]

    def _read_model_name(self) -> str | None:
        """Return the model name in the first answer."""
        if not self._index.n_rows:
            return None
        try:
            return as_text(as_mapping(self._index.read_row(0).get("response")).get("model"))
        except ReportError:
            return None

    def _open_plan(self) -> Index | None:
        with self._lock:
            # One file at a time: reading the plan too would delay the first rows of a large file.
            if self._plan is None and self._index.progress.complete and self.paths.materialized.is_file():
                self._plan = open_index(self.paths.materialized, user_cache_dir=self._cache_dir)
                self._plan.wait(_FIRST_WAIT_S)
            return self._plan


def find_run_paths(path: Path) -> RunPaths:
    """Return the files of the run whose rollouts file or failures file is `path`."""
    if path.stem.endswith(_FAILURES):
        return RunPaths.of(path.with_name(path.stem.removesuffix(_FAILURES) + path.suffix))
    return RunPaths.of(path)


def label_files(paths: Sequence[Path]) -> list[str]:
    """Return what to call each file: its name, with as many of its folders as tell it from another of that name."""
    named = [path.resolve().parts for path in paths]
    labels = []
    for parts in named:
        others = {other for other in named if other != parts}
        length = 1
        while any(other[-length:] == parts[-length:] for other in others):
            length += 1
        labels.append("/".join(parts[-length:]))
    return labels


def open_failures(index: Index, user_cache_dir: Path | None = None) -> Index | None:
    """Open the failures file of the same run; None if there is none or nothing failed."""
    path = find_run_paths(index.path).failures
    if path == index.path or not path.is_file() or path.stat().st_size == 0:
        return None
    return open_index(path, user_cache_dir=user_cache_dir)


def describe_run(manifest: Manifest, served_model: str | None = None) -> RunDescription:
    """Describe a run; `served_model` is the model name in its answers, which the config may not contain."""
    config = copy.deepcopy(manifest.config)
    settings = copy.deepcopy(manifest.settings)
    hide_secrets(config)
    hide_secrets(settings)
    model = ", ".join(_iter_models(config, served_model)) or served_model or ""
    environment = ", ".join(name for name, _, _ in _iter_servers(config, "resources_servers"))
    agents = ", ".join(name for name, _, _ in _iter_servers(config, "responses_api_agents"))
    git = "no repository"
    if manifest.git:
        git = manifest.git.commit[:_DIGEST_LENGTH]
        if manifest.git.dirty:
            git = f"{git}, with uncommitted changes"
    facts = [
        ("Model", model),
        ("Environment", environment),
        ("Agent", str(settings.get("agent_name") or agents)),
        ("Started", _describe_time(manifest)),
        ("Outcome", _describe_outcome(manifest)),
        ("Settings", ", ".join(_iter_settings(settings, config))),
        ("Input", f"{Path(manifest.input.path).name} (sha256 {manifest.input.sha256[:_DIGEST_LENGTH]}…)"),
        ("Versions", f"nemo_gym {manifest.nemo_gym}, Python {manifest.python}"),
        ("Git", git),
    ]
    headline = " · ".join(filter(None, [model, environment, _format_date(manifest.started_at)]))
    return RunDescription(headline, [(label, text) for label, text in facts if text], config)


def _iter_servers(config: Mapping[str, Any], kind: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the servers of a kind: the name of each, its implementation, and its own settings."""
    for name, block in config.items():
        for implementation, own in as_mapping(as_mapping(block).get(kind)).items():
            yield name, implementation, as_mapping(own)


def _iter_models(config: Mapping[str, Any], served_model: str | None) -> Iterator[str]:
    for number, (name, implementation, own) in enumerate(_iter_servers(config, "responses_api_models")):
        known = next(filter(None, (as_text(own.get(key)) for key in _MODEL_KEYS)), None)
        if number == 0:
            # Rollouts give the name of the policy model, which is the first one in the config.
            known = known or served_model
        yield f"{known or name} ({implementation})"


def _iter_settings(settings: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    labels = {"num_repeats": "repeats", "limit": "limit", "prompt_config": "prompt"}
    yield from (f"{label} {settings[key]}" for key, label in labels.items() if settings.get(key) is not None)
    sampling = as_mapping(settings.get("responses_create_params"))
    yield from (f"{key} {value}" for key, value in sampling.items() if value is not None)
    if config.get("num_samples_in_parallel") is not None:
        yield f"{config['num_samples_in_parallel']} in parallel"


def _describe_time(manifest: Manifest) -> str:
    began = _format_date(manifest.started_at)
    if manifest.resumed_at:
        return f"{began}, last resumed {_format_date(manifest.resumed_at)}"
    start = _parse_date(manifest.started_at)
    end = _parse_date(manifest.ended_at or "")
    if start is None or end is None:
        return began
    seconds = (end - start).total_seconds()
    if seconds < 10:
        return f"{began}, took {seconds:.1f} s"
    if seconds < 60:
        return f"{began}, took {seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{began}, took {minutes} min {rest} s"
    return f"{began}, took {minutes // 60} h {minutes % 60} min"


def _format_date(text: str) -> str:
    date = _parse_date(text)
    return date.strftime("%Y-%m-%d %H:%M %Z").strip() if date else text


def _parse_date(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _describe_outcome(manifest: Manifest) -> str:
    counts = manifest.counts
    has_ended = manifest.status != "running"
    parts = []
    if has_ended:
        parts.append(f"{counts.scored:,} of {counts.requested:,} scored")
    if counts.failed:
        parts.append(f"{counts.failed:,} failed")
    if has_ended and counts.not_played:
        parts.append(f"{counts.not_played:,} not run")
    if not parts:
        return manifest.status
    return f"{manifest.status}: {', '.join(parts)}"
