# SPDX-License-Identifier: Apache-2.0
"""Where captures live: `<root>/<rollout id>.capture.jsonl`, and `.capture.incomplete` beside it once a call was lost.

Every process of a run may write to the same folder. Calls block; from an event loop use a thread.
"""

from pathlib import Path
from typing import Any

from nemo_gym._capture.journal import append_object, parse_object, read_lines, read_objects
from nemo_gym._util.rollout_paths import check_rollout_id

CAPTURE_SUFFIX = ".capture.jsonl"
INCOMPLETE_SUFFIX = ".capture.incomplete"


class CaptureStore:
    """The captured exchanges with models, by rollout."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self.root.mkdir(parents=True, exist_ok=True)

    def path_for(self, rollout_id: str) -> Path:
        return self.root / f"{check_rollout_id(rollout_id)}{CAPTURE_SUFFIX}"

    def incomplete_path_for(self, rollout_id: str) -> Path:
        return self.root / f"{check_rollout_id(rollout_id)}{INCOMPLETE_SUFFIX}"

    def record(self, rollout_id: str, exchange: dict[str, Any]) -> None:
        """Add one exchange to the capture of `rollout_id`; it is on the disk when this returns."""
        append_object(self.path_for(rollout_id), exchange)

    def mark_incomplete(self, rollout_id: str, reason: str | None = None) -> None:
        """Note that the capture of `rollout_id` lacks something."""
        if reason is None:
            self.incomplete_path_for(rollout_id).touch()
        else:
            append_object(self.incomplete_path_for(rollout_id), {"reason": reason})

    def is_incomplete(self, rollout_id: str) -> bool:
        return self.incomplete_path_for(rollout_id).exists()

    def incomplete_reasons(self, rollout_id: str) -> list[str]:
        """Return what was said when the capture of `rollout_id` was marked incomplete, each once."""
        noted = read_objects(self.incomplete_path_for(rollout_id)).objects
        return list(dict.fromkeys(value["reason"] for value in noted if isinstance(value.get("reason"), str)))

    def read(self, rollout_id: str) -> list[dict[str, Any]]:
        """Return the exchanges of one rollout in the order in which they ended; ValueError for a line that is none."""
        return [parse_object(line) for line in read_lines(self.path_for(rollout_id))]

    def read_available(self, rollout_id: str) -> tuple[list[tuple[int, dict[str, Any]]], int]:
        """Return the exchanges that can be read, each with the place of its line from 0, and how many cannot."""
        found: list[tuple[int, dict[str, Any]]] = []
        lines = read_lines(self.path_for(rollout_id))
        for place, line in enumerate(lines):
            try:
                found.append((place, parse_object(line)))
            except (ValueError, RecursionError):
                continue
        return found, len(lines) - len(found)

    def drop(self, rollout_id: str) -> None:
        """Delete what was captured of `rollout_id`."""
        self.path_for(rollout_id).unlink(missing_ok=True)
        self.incomplete_path_for(rollout_id).unlink(missing_ok=True)
