# SPDX-License-Identifier: Apache-2.0
"""What the metrics need of every rollout, noted as it ends, so that a run does not read all it wrote once more.

The notes are a copy: where they are not complete, as in a resumed run, the rollouts themselves are read.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from nemo_gym._results.rows import strip_row
from nemo_gym._rollouts.paths import RunPaths
from nemo_gym._rollouts.types import Outcome, Scored
from nemo_gym._util.jsonl import dumps_line

_BUFFER_BYTES = 1 << 18


class Scores:
    """The scored rollouts of a run without their bulk, in a file of the same form."""

    def __init__(self, paths: RunPaths, *, complete: bool) -> None:
        """Not `complete`: there are rollouts that will not be noted here."""
        self._paths, self._complete = paths, complete
        self._file: BinaryIO | None = None

    def noting(self, then: Callable[[Outcome], None]) -> Callable[[Outcome], None]:
        """`then`, with a note of every rollout."""

        def note(outcome: Outcome) -> None:
            self.add(outcome)
            then(outcome)

        return note

    def add(self, outcome: Outcome) -> None:
        """Note a rollout that has ended."""
        if not self._complete or not isinstance(outcome, Scored):
            return
        try:
            if self._file is None:
                self._file = self._paths.scores.open("wb", buffering=_BUFFER_BYTES)
            self._file.write(dumps_line(strip_row(outcome.result)))
        except (OSError, TypeError):  # a full disk, text that is no Unicode: the rollouts are recorded all the same
            self._complete = False

    def rollouts(self) -> Path:
        """The file to compute metrics from."""
        if self._complete and self._file is not None:
            try:
                self._file.flush()
                return self._paths.scores
            except OSError:
                self._complete = False
        return self._paths.output

    def close(self) -> None:
        """Leave no trace."""
        with suppress(OSError):  # what was not written yet finds no room
            if self._file is not None:
                self._file.close()
        self._paths.scores.unlink(missing_ok=True)


@contextmanager
def kept_scores(paths: RunPaths, *, complete: bool) -> Iterator[Scores]:
    """Notes that last as long as the context."""
    scores = Scores(paths, complete=complete)
    try:
        yield scores
    finally:
        scores.close()
