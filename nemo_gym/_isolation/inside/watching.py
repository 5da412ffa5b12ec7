# SPDX-License-Identifier: Apache-2.0
"""Who watches whom: the trusted process watches a child that runs untrusted code, and a keeper watches both.

We read what a child writes and decide when to stop it. The keeper is for systems without a PID namespace: when the
trusted process dies, the kernel kills its children, which asked for that, but not their children. The keeper inherits
those and kills them. If the keeper dies, the trusted process ends too and takes everything with it.
"""

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from nemo_gym._isolation.inside.containment import (
    Baseline,
    Rules,
    find_exceeded_limit,
    find_processes,
    kill_all,
    measure_waiting,
    remove_folders,
)
from nemo_gym._isolation.inside.kernel_rules import PR_SET_PDEATHSIG, guard_against_children, prctl

CHECK_INTERVAL_S = 0.02
CHUNK_BYTES = 1 << 16
STDERR_TAIL_BYTES = 1 << 16
# Time for which other processes had the processor does not count against the code, within bounds.
MAX_EXTENSION = 2.0
KEEPER_DIED = signal.SIGUSR1
STDERR = 2


class ServerGone(Exception):
    """Nobody waits for an answer."""


@dataclass
class CodeProcess:
    """A process that runs code, and our ends of its streams."""

    pid: int
    pidfd: int
    stdout: int
    stderr: int
    report: int
    key: str
    """A secret that it was started with, which proves that a report comes from us and not from the code."""
    written: dict[int, bytearray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for fd in self.streams:
            os.set_blocking(fd, False)
        self.forget_written()

    @property
    def streams(self) -> tuple[int, int, int]:
        """The streams it writes to."""
        return self.stdout, self.stderr, self.report

    def forget_written(self) -> None:
        """Start over with empty streams."""
        self.written = {fd: bytearray() for fd in self.streams}

    def close(self) -> None:
        """Close the file descriptors."""
        for fd in (self.pidfd, *self.streams):
            os.close(fd)


def watch(
    child: CodeProcess, rules: Rules, baseline: Baseline, timeout_s: float, control: int, *, until_report: bool
) -> str | None:
    """Wait until the child ends or, with `until_report`, reports; return why it must be stopped, if it must."""
    begin = time.monotonic()
    waited_before = measure_waiting(child.pid)
    poll = select.poll()
    for fd in (child.pidfd, *child.streams):
        poll.register(fd, select.POLLIN)
    poll.register(control, select.POLLRDHUP)
    deadline = begin + timeout_s
    next_check = begin + CHECK_INTERVAL_S
    while True:
        pause_s = min(deadline, next_check) - time.monotonic()
        ready = {fd for fd, _ in poll.poll(max(pause_s, 0) * 1000 + 0.5)}
        if control in ready:
            raise ServerGone
        for fd in ready.intersection(child.streams):
            if not read_piece(child, fd):
                poll.unregister(fd)
        if child.pidfd in ready or (until_report and child.written[child.report].endswith(b"\n")):
            return None
        if count_written(child) > rules.max_output_bytes:
            return "output"
        now = time.monotonic()
        if now >= deadline:
            # A process that the child started may do the work.
            waited = max(measure_waiting(pid) for pid in (child.pid, *find_processes(rules)))
            extension = min(waited - waited_before, MAX_EXTENSION * timeout_s)
            deadline = begin + timeout_s + extension
            if now >= deadline:
                return "timeout"
        if now >= next_check:
            if cause := find_exceeded_limit(rules, baseline):
                return cause
            next_check = time.monotonic() + CHECK_INTERVAL_S


def read_piece(child: CodeProcess, fd: int) -> bool:
    """Read a piece of what the child wrote; return False at the end of the stream."""
    try:
        piece = os.read(fd, CHUNK_BYTES)
    except BlockingIOError:
        return True
    except ConnectionError:  # it closed its end with unread data
        return False
    child.written[fd] += piece
    return bool(piece)


def read_rest(child: CodeProcess, rules: Rules) -> None:
    """Read what is left in the streams, up to the limit."""
    for fd in child.streams:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while count_written(child) <= rules.max_output_bytes and (piece := os.read(fd, CHUNK_BYTES)):
                child.written[fd] += piece


def count_oom_kills() -> int:
    """Return how many processes the kernel has killed so far because this machine ran out of memory."""
    with contextlib.suppress(OSError, StopIteration), open("/proc/vmstat", "rb") as counters:
        return next(int(line.split()[1]) for line in counters if line.startswith(b"oom_kill "))
    return 0


def count_written(child: CodeProcess) -> int:
    """Return how many bytes the child has written."""
    return sum(map(len, child.written.values()))


def describe_end(child: CodeProcess, rules: Rules, cause: str | None, exit_code: int | None) -> dict[str, Any]:
    """Return the answer about how a run ended."""
    report = {name: value for said in read_reports(child) for name, value in said.items()}
    if cause is None and count_written(child) > rules.max_output_bytes:
        cause = "output"
    if cause is None and report.get("memory"):
        cause = "memory"
    if cause is None and exit_code is not None and exit_code < 0:
        cause = "killed"
    if cause is None:
        cause = "error" if exit_code else "ok"
    value = report.get("value")
    if not isinstance(value, str):
        value = None  # the code can write to the stream too
    stderr = bytes(child.written[child.stderr][-STDERR_TAIL_BYTES:])
    return {
        "status": cause,
        "exit_code": exit_code,
        "stdout": bytes(child.written[child.stdout][: rules.max_output_bytes]).decode(errors="replace"),
        "stderr": stderr.decode(errors="replace"),
        "value": value,
        "exited": report.get("exited") is True,
        "cell_status": report.get("status"),
    }


def read_reports(child: CodeProcess) -> Iterator[dict[str, Any]]:
    """Yield the child's reports; skip what is not a report, since the code can write to the stream too."""
    for line in bytes(child.written[child.report]).splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            report = json.loads(line)
            if isinstance(report, dict):
                yield report


def fork_below_keeper(rules: Rules) -> None:
    """Continue in a new process; the old one becomes its keeper and ends after it."""
    guard_against_children()
    own_pid = os.getpid()
    below = os.fork()
    if below != 0:
        _keep(below, rules)
    signal.signal(KEEPER_DIED, _end_without_keeper)
    prctl(PR_SET_PDEATHSIG, KEEPER_DIED)
    if os.getppid() != own_pid:
        raise SystemExit("the keeper of this sandbox was killed")


def forget_keeper() -> None:
    """Ignore the death of the keeper from here on."""
    signal.signal(KEEPER_DIED, signal.SIG_IGN)


def _keep(below: int, rules: Rules) -> None:
    """Wait for the end of the trusted process, then kill and remove what it left behind."""
    try:
        os.closerange(0, STDERR)
        os.closerange(STDERR + 1, 1 << 16)
        with contextlib.suppress(InterruptedError):
            signal.signal(signal.SIGTERM, _end_by_order)
            while os.waitpid(-1, 0)[0] != below:
                pass
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        kill_all(rules)
        with contextlib.suppress(FileNotFoundError):  # usually the trusted process has removed them
            remove_folders(rules)
    finally:
        os._exit(0)


def _end_by_order(number: int, frame: FrameType | None) -> None:
    raise InterruptedError


def _end_without_keeper(number: int, frame: FrameType | None) -> None:
    raise ServerGone
