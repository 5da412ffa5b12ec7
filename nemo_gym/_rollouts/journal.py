# SPDX-License-Identifier: Apache-2.0
"""The record of a run: one line per rollout, appended to the output if it was scored, else to the failures.

A line is handed to the OS whole, so a killed process loses nothing it recorded. A line torn by a machine crash is cut
off and kept aside on resume. `resume` works out what is still to run.
"""

import json
import logging
import os
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from nemo_gym._rollouts.outcomes import Failed, Outcome, Row, Scored, pick_carried_fields
from nemo_gym._rollouts.run_manifest import Counts, Manifest, Status, now, write_manifest
from nemo_gym._rollouts.run_paths import RunFileError, RunPaths, torn_path, write_error
from nemo_gym._transport.failures import NOT_THERE, REFUSED
from nemo_gym._util.jsonl_files import dumps_line
from nemo_gym._util.known_secrets import KNOWN_SECRETS
from nemo_gym._util.row_keys import ATTEMPT_INDEX_KEY_NAME, FAILURE_KEY, NG_FAILURE_CLASS_KEY, NG_TERMINAL_KEY

LOG = logging.getLogger(__name__)
FAILURE_SCHEMA = 1
SYNC_EVERY_S = 1.0
_RESUMABLE = "what was recorded before is safe; make room, then run the same command again with `--resume`"
_TAIL_BYTES = 1 << 16


class Journal:
    """Records outcomes. A context manager: on exit, it notes in the manifest how the run ended."""

    def __init__(
        self,
        paths: RunPaths,
        manifest: Manifest,
        sync_every_s: float | None = SYNC_EVERY_S,
        max_attempts: int | None = None,
    ) -> None:
        """Open the logs; `manifest.counts` holds the counts so far.

        `max_attempts` is how often a failing rollout may run in total, across resumed runs; None means no limit.
        """
        self._paths = paths
        self._manifest = manifest
        self._scored = manifest.counts.scored
        self._failed = Counter(manifest.counts.by_kind)
        self._output = _Log(paths.output)
        self._failures = _Log(paths.failures)
        self._disk = _Disk(sync_every_s)
        self._closed = False
        self._max_attempts = max_attempts
        self.most_in_flight: int | None = None
        self.given_up = manifest.counts.failed
        """How many of the failed rollouts a resumed run will not run again."""

    @classmethod
    def begin(cls, paths: RunPaths, manifest: Manifest, **settings: Any) -> Self:
        """Begin a new run: replace the files of the earlier run; the new plan is in the draft.

        Call it once the run can really start its first row. The plan is moved last: a run that dies in here leaves
        none, so that nothing half-begun can be resumed.
        """
        outdated = (paths.materialized, paths.output, paths.failures, paths.aggregate_metrics)
        try:
            for path in (*outdated, torn_path(paths.output), torn_path(paths.failures)):
                path.unlink(missing_ok=True)
            write_manifest(paths.manifest, manifest)
            os.replace(paths.materialized_draft, paths.materialized)
        except OSError as error:
            if isinstance(error, RunFileError):
                raise
            raise write_error(paths.output, error, "choose an output in a folder that you can write to") from error
        return cls(paths, manifest, **settings)

    @classmethod
    def resume(cls, paths: RunPaths, manifest: Manifest, **settings: Any) -> Self:
        """Continue a run; `manifest.counts` holds the counts so far."""
        write_manifest(paths.manifest, manifest)
        return cls(paths, manifest, **settings)

    @property
    def counts(self) -> Counts:
        """What became of the planned rollouts so far."""
        requested = self._manifest.counts.requested
        failed = self._failed.total()
        return Counts(
            requested=requested,
            scored=self._scored,
            failed=failed,
            not_played=requested - self._scored - failed,
            by_kind=dict(self._failed),
        )

    def record(self, outcome: Outcome) -> None:
        """Write `outcome` to the right file and count it; raise RunFileError if that fails."""
        if isinstance(outcome, Scored):
            self._output.append(outcome.line or encode_line(outcome.result))
            self._scored += 1
        else:
            if outcome.persist:
                self._failures.append(KNOWN_SECRETS.mask_bytes(encode_line(build_failed_row(outcome))))
            if outcome.failure.kind != "cancelled":  # a cancelled rollout did not finish, and will run again
                self._failed[outcome.failure.kind] += 1
                self.given_up += self._max_attempts is not None and is_given_up(outcome, self._max_attempts)
        self._disk.sync_if_due(self._output, self._failures)

    def close(self, status: Status = "finished") -> None:
        """Make everything durable, and note in the manifest how the run ended; only the first call counts."""
        if self._closed:
            return
        self._closed = True
        try:
            self._disk.close(self._output, self._failures)
        finally:
            os.close(self._output.fd)
            os.close(self._failures.fd)
            try:
                write_manifest(self._paths.manifest, self._manifest.end(status, self.counts, self.most_in_flight))
            except RunFileError as error:
                # The rollouts are what counts, and they are recorded: a missing end note is no reason to fail.
                LOG.warning("%s", error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close("finished")
        else:
            self.close("failed" if isinstance(error, Exception) else "interrupted")


def build_failed_row(outcome: Failed) -> Row:
    """Return the line of a failed rollout: what the agent said about it, if anything, and what we know."""
    failure = outcome.failure
    known: dict[str, Any] = {
        "schema": FAILURE_SCHEMA,
        "kind": failure.kind,
        "boundary": failure.boundary,
        "retryable": failure.retryable,
        "message": failure.message,
    }
    if failure.cause:
        known["cause"] = failure.cause
    if failure.traceback:
        known["traceback"] = failure.traceback
    known |= {"attempts": outcome.attempts, "elapsed_s": round(outcome.elapsed_s, 3), "at": now()}
    row = {**(outcome.result or {}), **pick_carried_fields(outcome.row)}
    row[NG_FAILURE_CLASS_KEY] = row.get(NG_FAILURE_CLASS_KEY) or failure.kind
    if outcome.terminal:
        row[NG_TERMINAL_KEY] = True
    row[FAILURE_KEY] = known
    return row


def is_given_up(failed: Failed, max_attempts: int) -> bool:
    """Return whether a resumed run will not run this rollout again."""
    if not failed.persist:
        return False
    before = failed.row.get(ATTEMPT_INDEX_KEY_NAME) or 0
    attempts = before + uses_up_attempt(failed.failure.kind, failed.failure.cause)
    return failed.terminal or attempts >= max_attempts


def uses_up_attempt(kind: str, cause: object) -> bool:
    """Return whether a failure uses up one of the rollout's attempts.

    Stopping a run does not, and neither does a wrong key, model or URL, which says nothing about the rollout.
    """
    return kind != "cancelled" and not (kind == "model_endpoint" and cause in (*REFUSED, *NOT_THERE))


def repair(log: Path) -> str | None:
    """Make `log` end with a whole line, so that it can be appended to; return a notice if a line was removed.

    A torn last line is moved to `<log>.torn`. A last row that lacks only its newline is complete and stays.
    """
    try:
        with open(log, "r+b") as file:
            start, last = _read_last_line(file.fileno())
            if not last.strip() or _is_row(last):
                if last and not last.endswith(b"\n"):
                    os.pwrite(file.fileno(), b"\n", start + len(last))
                return None
            with open(torn_path(log), "ab") as kept:
                kept.write(last.removesuffix(b"\n") + b"\n")
            file.truncate(start)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise write_error(log, error, "the file must be writable to be resumed") from error
    return (
        f"the last line of {log} was cut off ({len(last)} bytes); it was moved to {torn_path(log).name}, "
        f"and its rollout will run again"
    )


def _read_last_line(fd: int) -> tuple[int, bytes]:
    """Find where the last line begins, and read it."""
    end = os.fstat(fd).st_size
    start = end
    tail = b""
    while start > 0:
        step = min(start, max(_TAIL_BYTES, len(tail)))
        start -= step
        tail = os.pread(fd, step, start) + tail
        newline = tail.rfind(b"\n", 0, len(tail) - 1)
        if newline >= 0:
            return start + newline + 1, tail[newline + 1 :]
    return 0, tail


def _is_row(line: bytes) -> bool:
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False


def encode_line(row: Row) -> bytes:
    """Return the line of a row, including a row with values that JSON cannot represent."""
    try:
        return dumps_line(row)
    except TypeError:
        # Half a surrogate pair, or a number past 64 bits: rare, and no reason to lose a rollout.
        plain: Any = json.loads(json.dumps(row, default=str), parse_constant=lambda _: None)
        return json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


class _Log:
    """One append-only file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise write_error(path, error, _RESUMABLE) from error
        self._end = os.fstat(self.fd).st_size

    def append(self, line: bytes) -> None:
        try:
            written = os.write(self.fd, line)
            while written < len(line):
                written += os.write(self.fd, memoryview(line)[written:])
        except OSError as error:
            # Half a line may have been written; truncating a file needs no space.
            os.ftruncate(self.fd, self._end)
            raise write_error(self.path, error, _RESUMABLE) from error
        self._end += len(line)

    def sync(self) -> None:
        try:
            os.fsync(self.fd)
        except OSError as error:
            raise write_error(self.path, error, _RESUMABLE) from error


class _Disk:
    """Syncs logs to disk periodically, on its own thread: a slow disk must not hold up the event loop."""

    def __init__(self, every_s: float | None) -> None:
        self._every_s = every_s
        self._last = time.monotonic()
        self._thread: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None

    def sync_if_due(self, *logs: _Log) -> None:
        if self._every_s is None or time.monotonic() - self._last < self._every_s:
            return
        if self._pending is not None:
            if not self._pending.done():
                return
            self._pending.result()
        self._last = time.monotonic()
        self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="journal-sync")
        self._pending = self._thread.submit(self._sync, logs)

    def close(self, *logs: _Log) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True)
        if self._pending is not None:
            self._pending.result()
        if self._every_s is not None:
            self._sync(logs)

    @staticmethod
    def _sync(logs: tuple[_Log, ...]) -> None:
        for log in logs:
            log.sync()
