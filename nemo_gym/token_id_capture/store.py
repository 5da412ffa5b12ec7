# SPDX-License-Identifier: Apache-2.0
"""Token sink and source in one folder that all processes of a run share: `<dir>/<rollout id>.tokens.jsonl`.

Beside it stand `.tokens.begun` (the calls that were started), `.tokens.incomplete` (what was lost) and
`.tokens.frozen` (the rollout takes no more tokens).
"""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from pydantic import ValidationError

from nemo_gym._training.capture.capture_store import append_object, read_objects
from nemo_gym._util.rollout_paths import check_rollout_id
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body
from nemo_gym.token_id_capture.records import TokenCaptureSnapshot, TokenEntry

TOKENS_SUFFIX = ".tokens.jsonl"
BEGUN_SUFFIX = ".tokens.begun"
INCOMPLETE_SUFFIX = ".tokens.incomplete"
FROZEN_SUFFIX = ".tokens.frozen"


class TokenCaptureStore:
    """Keep tokens as files. Nothing is held open between calls, and files are touched in a thread."""

    def __init__(self, dir: Path | str) -> None:
        self.dir = Path(dir)

    def path_for(self, rollout_id: str) -> Path:
        return self._get_path(rollout_id, TOKENS_SUFFIX)

    async def begin_call(self, rollout_id: str, model_call_id: str) -> None:
        """Note that a call was started: until it is put or marked, the rollout is incomplete."""
        await asyncio.to_thread(
            append_object, self._get_path(rollout_id, BEGUN_SUFFIX), {"model_call_id": model_call_id}
        )

    async def put(self, entry: TokenEntry) -> None:
        """Add the tokens of one answer; after `freeze` they are refused and the rollout counts as incomplete."""
        await asyncio.to_thread(self._put, entry)

    async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None:
        await asyncio.to_thread(
            append_object, self._get_path(rollout_id, INCOMPLETE_SUFFIX), {"model_call_id": model_call_id}
        )

    async def explain_incomplete(self, rollout_id: str, model_call_id: str, reason: str) -> None:
        """Mark the rollout incomplete and keep the reason for its snapshot."""
        await asyncio.to_thread(self._explain, rollout_id, model_call_id, reason)

    async def freeze(self, rollout_id: str) -> TokenCaptureSnapshot:
        """Close the rollout and return what it holds; asking again gives the same tokens."""
        return await asyncio.to_thread(self._freeze, rollout_id)

    async def drop(self, rollout_id: str, *, snapshot_id: str, version: int) -> bool:
        """Delete the tokens of a snapshot; False, and nothing is deleted, if the rollout has changed since.

        The frozen marker stays so that a late writer cannot start the file anew.
        """
        return await asyncio.to_thread(self._drop, rollout_id, snapshot_id, version)

    async def restart(self, rollout_id: str) -> None:
        """Forget the rollout altogether: it is played again, and what is put from now on counts."""
        await asyncio.to_thread(self._delete, rollout_id, TOKENS_SUFFIX, BEGUN_SUFFIX, INCOMPLETE_SUFFIX, FROZEN_SUFFIX)

    async def close(self) -> None:
        """Do nothing: nothing is held open."""

    def _put(self, entry: TokenEntry) -> None:
        if self._get_path(entry.rollout_id, FROZEN_SUFFIX).exists():
            self._explain(entry.rollout_id, entry.model_call_id, "tokens arrived after the rollout was frozen")
        else:
            append_object(self.path_for(entry.rollout_id), entry.model_dump(exclude_none=True))

    def _explain(self, rollout_id: str, model_call_id: str, reason: str) -> None:
        mark = {"model_call_id": model_call_id, "reason": reason}
        append_object(self._get_path(rollout_id, INCOMPLETE_SUFFIX), mark)

    def _freeze(self, rollout_id: str) -> TokenCaptureSnapshot:
        frozen = self._get_path(rollout_id, FROZEN_SUFFIX)
        frozen.parent.mkdir(parents=True, exist_ok=True)
        try:
            with frozen.open("x") as file:
                file.write(uuid4().hex)
        except FileExistsError:
            pass
        version = self._measure_version(rollout_id)
        lines = read_objects(self.path_for(rollout_id))
        reasons = [f"line {number} of the token file cannot be read" for number in lines.unreadable]
        entries = []
        for line in lines.objects:
            try:
                entries.append(TokenEntry.model_validate(line))
            except ValidationError as error:
                reasons.append(f"an entry of the token file is not valid: {error.errors()[0]['msg']}")
        reasons += self._read_reasons(rollout_id, {entry.model_call_id for entry in entries})
        return TokenCaptureSnapshot(rollout_id, entries, bool(reasons), frozen.read_text(), version, reasons)

    def _read_reasons(self, rollout_id: str, captured: set[str]) -> list[str]:
        """Return what was noted as lost, and the calls that were started and neither captured nor noted."""
        path = self._get_path(rollout_id, INCOMPLETE_SUFFIX)
        marks = read_objects(path).objects
        # The marker alone, even empty or torn, says that something is missing.
        reasons = [] if marks or not path.exists() else ["unknown"]
        explained = {str(mark.get("model_call_id", "")) for mark in marks if "reason" in mark}
        for mark in marks:
            call = str(mark.get("model_call_id", ""))
            prefix = ""
            if call:
                prefix = f"call {call}: "
            if "reason" in mark:
                reasons.append(f"{prefix}{mark['reason']}")
            elif call not in explained:
                reasons.append(f"{prefix}tokens were lost")
        marked = {mark.get("model_call_id") for mark in marks}
        begun = [line.get("model_call_id") for line in read_objects(self._get_path(rollout_id, BEGUN_SUFFIX)).objects]
        return reasons + [f"call {call}: not finished" for call in begun if call not in captured | marked]

    def _drop(self, rollout_id: str, snapshot_id: str, version: int) -> bool:
        frozen = self._get_path(rollout_id, FROZEN_SUFFIX)
        if not frozen.exists() or (frozen.read_text(), self._measure_version(rollout_id)) != (snapshot_id, version):
            return False
        self._delete(rollout_id, TOKENS_SUFFIX, BEGUN_SUFFIX, INCOMPLETE_SUFFIX)
        return True

    def _measure_version(self, rollout_id: str) -> int:
        # Both files only ever grow.
        paths = (self._get_path(rollout_id, suffix) for suffix in (TOKENS_SUFFIX, INCOMPLETE_SUFFIX))
        return sum(path.stat().st_size for path in paths if path.exists())

    def _delete(self, rollout_id: str, *suffixes: str) -> None:
        for suffix in suffixes:
            self._get_path(rollout_id, suffix).unlink(missing_ok=True)

    def _get_path(self, rollout_id: str, suffix: str) -> Path:
        return self.dir / f"{check_rollout_id(rollout_id)}{suffix}"


class _CaptureSettings(Protocol):
    """The part of `TokenIdCaptureConfig` that decides about a store; that module imports this one."""

    enabled: bool
    dir: Path | None
    sink: str | None


def make_token_store(config: _CaptureSettings) -> TokenCaptureStore | None:
    """Return the file store of the config; None if capture is off, has no folder, or goes to a sink of its own."""
    if not config.enabled or config.sink is not None or config.dir is None:
        return None
    return TokenCaptureStore(config.dir)


def clear_token_captures_for_rollouts(
    rows: Iterable[Mapping[str, Any]], dirs: Path | str | Iterable[Path | str]
) -> None:
    """Delete what earlier runs left in `dirs` under the rollout ids of `rows`."""
    if isinstance(dirs, str | Path):
        dirs = [dirs]
    stores = [TokenCaptureStore(dir) for dir in dirs]
    for row in rows:
        if (rollout_id := maybe_rollout_id_from_run_body(row)) is not None:
            for store in stores:
                store._delete(rollout_id, TOKENS_SUFFIX, BEGUN_SUFFIX, INCOMPLETE_SUFFIX, FROZEN_SUFFIX)
