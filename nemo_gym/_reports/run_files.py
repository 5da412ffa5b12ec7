# SPDX-License-Identifier: Apache-2.0
"""What a run has left beside the file that is shown: its plan, in which each task is whole, and its manifest."""

import threading
from pathlib import Path
from typing import Any

from nemo_gym._reports.errors import ReportError
from nemo_gym._reports.facts import UNNUMBERED
from nemo_gym._reports.index import Index, open_index
from nemo_gym._reports.run_description import RunDescription, describe_run
from nemo_gym._rollouts.manifest import Manifest, read_manifest
from nemo_gym._rollouts.paths import RunFileError, RunPaths

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
