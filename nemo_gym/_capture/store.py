# SPDX-License-Identifier: Apache-2.0
"""Where captures live: `<dir>/<rollout id>.capture.jsonl`, and `.capture.incomplete` beside it once a call was lost.

Every process of a run may write to the same directory. Calls block; from an event loop use a thread.
"""

import logging
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nemo_gym._capture.journal import append_object, read_objects
from nemo_gym._capture.records import CaptureGap, ModelCallRecord, RolloutCapture
from nemo_gym._util.rollout_paths import check_rollout_id

logger = logging.getLogger(__name__)

CAPTURE_SUFFIX = ".capture.jsonl"
INCOMPLETE_SUFFIX = ".capture.incomplete"


class CaptureStore:
    """The captures of one run."""

    def __init__(self, capture_dir: Path | str) -> None:
        self.capture_dir = Path(capture_dir)

    def path_for(self, rollout_id: str) -> Path:
        return self.capture_dir / f"{check_rollout_id(rollout_id)}{CAPTURE_SUFFIX}"

    def incomplete_path_for(self, rollout_id: str) -> Path:
        return self.capture_dir / f"{check_rollout_id(rollout_id)}{INCOMPLETE_SUFFIX}"

    def append(self, rollout_id: str, record: ModelCallRecord) -> None:
        """Add one exchange to the capture of `rollout_id`."""
        # dict(record) is shallow: request and response may be large and are only passed on.
        append_object(self.path_for(rollout_id), {**dict(record), "rollout_id": rollout_id})

    def mark_incomplete(
        self, rollout_id: str, code: str = "incomplete", detail: str | None = None, model_call_id: str | None = None
    ) -> None:
        """Note that the capture of `rollout_id` lacks something."""
        append_object(self.incomplete_path_for(rollout_id), CaptureGap(code, detail, model_call_id).as_dict())

    def is_incomplete(self, rollout_id: str) -> bool:
        return self.incomplete_path_for(rollout_id).exists()

    def rollout_ids(self) -> list[str]:
        """Every rollout of which something was captured."""
        return sorted(path.name.removesuffix(CAPTURE_SUFFIX) for path in self.capture_dir.glob(f"*{CAPTURE_SUFFIX}"))

    def read(self, rollout_id: str) -> RolloutCapture:
        """The calls of one rollout; what cannot be read becomes a gap instead of an error."""
        path = self.path_for(rollout_id)
        lines = read_objects(path)
        calls: list[ModelCallRecord] = []
        gaps = [CaptureGap("unreadable_record", f"{path.name}:{number}") for number in lines.unreadable]
        for value in lines.objects:
            try:
                calls.append(ModelCallRecord.model_validate(value))
            except ValidationError as error:
                gaps.append(CaptureGap("invalid_record", str(error), _text_or_none(value.get("model_call_id"))))
        gaps += self._noted_gaps(rollout_id)
        if gaps:
            logger.warning("the capture of rollout %r in %s has %d gap(s)", rollout_id, self.capture_dir, len(gaps))
        calls.sort(key=lambda call: call.started_at or 0.0)
        return RolloutCapture(rollout_id, calls, gaps)

    def drop(self, rollout_id: str) -> None:
        """Delete what was captured of `rollout_id`."""
        self.path_for(rollout_id).unlink(missing_ok=True)
        self.incomplete_path_for(rollout_id).unlink(missing_ok=True)

    def _noted_gaps(self, rollout_id: str) -> list[CaptureGap]:
        if not self.is_incomplete(rollout_id):
            return []
        noted = [
            CaptureGap(
                str(value.get("code", "incomplete")),
                _text_or_none(value.get("detail")),
                _text_or_none(value.get("model_call_id")),
            )
            for value in read_objects(self.incomplete_path_for(rollout_id)).objects
        ]
        # The marker alone, even empty or torn, says that something is missing.
        return noted or [CaptureGap("incomplete")]


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None
