# SPDX-License-Identifier: Apache-2.0
"""Token ids and log-probs of what a model generated, kept apart from the rollout so that they need not ride through it.

The protocols say what a store of one's own has to offer; `FileTokenStore` keeps `<dir>/<rollout id>.tokens.jsonl`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from nemo_gym._capture.journal import append_object, read_objects
from nemo_gym._util.rollout_paths import check_rollout_id

TOKENS_SUFFIX = ".tokens.jsonl"
INCOMPLETE_SUFFIX = ".tokens.incomplete"
FROZEN_SUFFIX = ".tokens.frozen"


@dataclass(frozen=True)
class FrozenTokens:
    """The tokens of one rollout once nothing can be added any more."""

    rollout_id: str
    records: list[dict[str, Any]] = field(default_factory=list)
    """One per item the model generated: model_call_id, item_index and the token fields."""
    incomplete_reasons: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return bool(self.records) and not self.incomplete_reasons


@runtime_checkable
class TokenSink(Protocol):
    """Where a model server puts tokens. Called from a thread, one call at a time."""

    def put(self, rollout_id: str, record: dict[str, Any]) -> None: ...

    def mark_incomplete(self, rollout_id: str, reason: str) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class TokenSource(Protocol):
    """Where the collector takes them from, once per rollout."""

    def freeze(self, rollout_id: str) -> FrozenTokens: ...

    def drop(self, rollout_id: str) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class RestartableTokenSource(Protocol):
    """A source that can be told that a rollout begins anew."""

    def restart(self, rollout_id: str) -> None: ...


class FileTokenStore:
    """Both ends in one directory that all processes of a run share."""

    def __init__(self, dir: Path | str) -> None:
        self.dir = Path(dir)

    def put(self, rollout_id: str, record: dict[str, Any]) -> None:
        """Add one generated item; after `freeze` it is refused and the rollout counts as incomplete."""
        if self._path(rollout_id, FROZEN_SUFFIX).exists():
            self.mark_incomplete(rollout_id, "tokens arrived after the rollout was frozen")
            return
        append_object(self._path(rollout_id, TOKENS_SUFFIX), record)

    def mark_incomplete(self, rollout_id: str, reason: str) -> None:
        append_object(self._path(rollout_id, INCOMPLETE_SUFFIX), {"reason": reason})

    def freeze(self, rollout_id: str) -> FrozenTokens:
        """Close the rollout and return what it holds; asking again gives the same tokens."""
        frozen = self._path(rollout_id, FROZEN_SUFFIX)
        frozen.parent.mkdir(parents=True, exist_ok=True)
        frozen.touch()
        lines = read_objects(self._path(rollout_id, TOKENS_SUFFIX))
        reasons = [f"line {number} of the token file cannot be read" for number in lines.unreadable]
        incomplete = self._path(rollout_id, INCOMPLETE_SUFFIX)
        if incomplete.exists():
            noted = [str(value.get("reason", "unknown")) for value in read_objects(incomplete).objects]
            reasons += noted or ["unknown"]
        return FrozenTokens(rollout_id, lines.objects, reasons)

    def drop(self, rollout_id: str) -> None:
        """Delete the rollout's tokens; the frozen marker stays so that a late writer cannot start the file anew."""
        self._path(rollout_id, TOKENS_SUFFIX).unlink(missing_ok=True)
        self._path(rollout_id, INCOMPLETE_SUFFIX).unlink(missing_ok=True)

    def restart(self, rollout_id: str) -> None:
        """Forget the rollout altogether: it is played again, and what is put from now on counts."""
        self.drop(rollout_id)
        self._path(rollout_id, FROZEN_SUFFIX).unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing is held open between calls."""

    def _path(self, rollout_id: str, suffix: str) -> Path:
        return self.dir / f"{check_rollout_id(rollout_id)}{suffix}"
