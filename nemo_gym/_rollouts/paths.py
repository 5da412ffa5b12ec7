# SPDX-License-Identifier: Apache-2.0
"""The files of a run: where they lie beside the rollouts file, and the error for one that cannot be read or written."""

import errno
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.errors import GymError


class RunFileError(GymError, OSError):
    """A file of a run cannot be read or written."""


@dataclass(frozen=True)
class RunPaths:
    """Everything that one run writes, by the name of its rollouts file."""

    output: Path
    """Scored rollouts, in the order in which they ended."""

    @classmethod
    def of(cls, output: str | Path) -> "RunPaths":
        path = Path(output)
        if not path.name or path.is_dir():
            raise RunFileError(
                f"the output {str(output)!r} is a folder, but rollouts go into a file.\n"
                f"hint: name one in it, such as {str(path / 'rollouts.jsonl')!r}"
            )
        return cls(path)

    @property
    def materialized(self) -> Path:
        """The planned rollouts: every row, expanded and repeated."""
        return self._beside("materialized_inputs.jsonl")

    @property
    def materialized_draft(self) -> Path:
        """The same, of a run that has not begun."""
        return self._beside("materialized_inputs.jsonl.partial")

    @property
    def failures(self) -> Path:
        """Rollouts that ended without a reward."""
        return self._beside("failures.jsonl")

    @property
    def aggregate_metrics(self) -> Path:
        return self._beside("aggregate_metrics.json")

    @property
    def manifest(self) -> Path:
        return self._beside("run.json")

    @property
    def scores(self) -> Path:
        """The scored rollouts without their bulk, while a run lasts."""
        return self._beside("scores.jsonl.partial")

    @property
    def lock(self) -> Path:
        return self._beside("run.lock")

    def _beside(self, what: str) -> Path:
        return self.output.with_name(f"{self.output.stem}_{what}")


def torn_path(log: Path) -> Path:
    """Where the ends that crashes tore off `log` are kept."""
    return log.with_name(f"{log.name}.torn")


def write_error(path: Path, error: OSError, hint: str) -> RunFileError:
    """`error`, met while writing `path`, as something the user can act on."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunFileError(f"the disk is full: {path} could not be written ({error.strerror}).\nhint: {hint}")
    return RunFileError(f"{path} could not be written: {error.strerror or error}.\nhint: {hint}")
