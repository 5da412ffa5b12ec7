# SPDX-License-Identifier: Apache-2.0
"""Run a command-line tool from asyncio: with a deadline, bounded output and no process left behind.

Standard input and output may be files. Captured output keeps its beginning and its end.
"""

import asyncio
import contextlib
import errno
import os
import signal
from asyncio.subprocess import DEVNULL as DEVNULL, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Literal

from nemo_gym.sandbox.providers.base import SandboxError

DEFAULT_MAX_OUTPUT_BYTES = 8 * 1024 * 1024
# A command that writes this many times as much as we keep is flooding us.
FLOOD_FACTOR = 64
READ_BYTES = 64 * 1024
GRACE_S = 2.0

EndedBy = Literal["timeout", "output_limit"]


@dataclass(frozen=True)
class Completed:
    """How a process ended; `ended_by` says why we ended it, if we did."""

    return_code: int
    stdout: bytes
    stderr: bytes
    ended_by: EndedBy | None = None


class Capture:
    """Keeps the first and the last bytes of a stream and counts the rest."""

    def __init__(self, max_bytes: int, flooded: asyncio.Event) -> None:
        self._half = max(max_bytes // 2, 1)
        self._flood_bytes = max_bytes * FLOOD_FACTOR
        self._flooded = flooded
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self.closed = asyncio.Event()

    def read_from(self, fd: int) -> None:
        """Read from a pipe that has something to read."""
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self.add(data)
        else:
            asyncio.get_running_loop().remove_reader(fd)
            self.closed.set()

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self._total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]
        if self._total > self._flood_bytes:
            self._flooded.set()

    def get_content(self) -> bytes:
        """Return the kept bytes, with a line in the middle that says how many are missing."""
        tail = bytes(self._tail[-self._half :])
        left_out = self._total - len(self._head) - len(tail)
        if not left_out:
            return bytes(self._head) + tail
        return bytes(self._head) + f"\n[... {left_out} bytes left out ...]\n".encode() + tail


async def run_program(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    stdin: int | IO[bytes] = DEVNULL,
    stdout: IO[bytes] | None = None,
    pass_fds: Sequence[int] = (),
    max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
    interrupt: Callable[[], Awaitable[None]] | None = None,
    grace_s: float | None = None,
) -> Completed:
    """Run `argv` until it ends; end it at the deadline, when it floods us, or when we are cancelled.

    `interrupt`, if given, first ends what the tool started elsewhere; then the tool's own process group is killed.
    `grace_s` is how long a tool that was asked to end may take, if not the usual `GRACE_S`.
    """
    flooded = asyncio.Event()
    out = Capture(max_output_bytes, flooded)
    err = Capture(max_output_bytes, flooded)
    with contextlib.ExitStack() as ours:
        with contextlib.ExitStack() as theirs:
            out_fd = _attach(out, ours, theirs)
            err_fd = _attach(err, ours, theirs)
            process = await spawn(argv, env, (stdin, stdout or out_fd, err_fd), pass_fds, interrupt, grace_s=grace_s)
        ended_by: EndedBy | None = None
        try:
            ended_by = await _wait_for_first(process, flooded, timeout_s)
        finally:
            if process.returncode is None:
                await end_process(process, interrupt, grace_s)
        await _drain(out, err)
    return Completed(to_exit_code(await process.wait()), out.get_content(), err.get_content(), ended_by)


def to_exit_code(returncode: int) -> int:
    """Return the exit code that a shell would report: 128 and more for a process that a signal ended."""
    return 128 - returncode if returncode < 0 else returncode


def _attach(capture: Capture, ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> int:
    """Let `capture` read a new pipe; return the writing end."""
    loop = asyncio.get_running_loop()
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    theirs.callback(os.close, write_fd)
    ours.callback(os.close, read_fd)
    loop.add_reader(read_fd, capture.read_from, read_fd)
    ours.callback(loop.remove_reader, read_fd)
    return write_fd


async def spawn(
    argv: Sequence[str],
    env: Mapping[str, str] | None,
    streams: tuple[int | IO[bytes], int | IO[bytes], int],
    pass_fds: Sequence[int] = (),
    interrupt: Callable[[], Awaitable[None]] | None = None,
    preexec_fn: Callable[[], None] | None = None,
    grace_s: float | None = None,
) -> Process:
    """Start a process in its own session; if we are cancelled meanwhile, end it.

    `streams` are its standard input, output and error. `preexec_fn`, if given, must open the session.
    """
    stdin, stdout, stderr = streams
    # In its own session, so that Ctrl-C in the terminal reaches only us, and we end the tool cleanly.
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            start_new_session=preexec_fn is None,
            preexec_fn=preexec_fn,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await end_process(await starting, interrupt, grace_s)
        raise
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        size = max(len(argument.encode()) for argument in argv)
        raise SandboxError(
            f"the command is too long for the operating system ({size} bytes in one argument)\n"
            "hint: upload it as a file and run that"
        ) from error


async def _wait_for_first(process: Process, flooded: asyncio.Event, timeout_s: float | None) -> EndedBy | None:
    """Wait for the process, a flood or the deadline; return None if the process ended on its own."""
    waits = [asyncio.ensure_future(process.wait()), asyncio.ensure_future(flooded.wait())]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if waits[0].done():
            return None
        return "output_limit" if flooded.is_set() else "timeout"
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def end_process(
    process: Process, interrupt: Callable[[], Awaitable[None]] | None, grace_s: float | None = None
) -> None:
    """End the process and its group: gently first, then by force."""
    try:
        if interrupt is None:
            _signal_group(process, signal.SIGTERM)
        else:
            await interrupt()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S if grace_s is None else grace_s):
                await process.wait()
    finally:
        _signal_group(process, signal.SIGKILL)
        await process.wait()


def _signal_group(process: Process, signal_number: int) -> None:
    # The process leads its group; once it is reaped, its pid may belong to another process.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal_number)


async def _drain(*captures: Capture) -> None:
    """Read the remaining output, but do not wait long for other processes that still hold the pipes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GRACE_S):
            for capture in captures:
                await capture.closed.wait()
