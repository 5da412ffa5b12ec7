# SPDX-License-Identifier: Apache-2.0
"""Interactive programs, connected through a terminal or plain streams."""

import asyncio
import contextlib
import fcntl
import json
import os
import struct
import termios
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import IO, Literal
from uuid import uuid4

from nemo_gym.sandbox.providers.base import SandboxPtyError, SandboxPtySpec
from nemo_gym.sandbox.providers.processes import READ_BYTES, end_process, spawn, to_exit_code


class TerminalSession:
    """A running program, and our end of its terminal or streams."""

    def __init__(
        self,
        process: Process,
        *,
        output_fd: int,
        input_fd: int,
        interrupt: Callable[[], Awaitable[None]] | None,
        report: IO[bytes] | None,
        grace_s: float | None,
    ) -> None:
        self.pty_id = uuid4().hex
        self._process = process
        self._output_fd = output_fd
        self._input_fd = input_fd
        self._interrupt = interrupt
        self._grace_s = grace_s
        self._exited = asyncio.ensure_future(process.wait())
        self._report = report
        self._return_code: int | None = None
        self._closed = False

    @property
    def has_ended(self) -> bool:
        """Whether the program has ended or the session is closed."""
        return self._closed or self._exited.done()

    async def read(self, timeout_s: float | None = None) -> bytes:
        """Return output as soon as there is some, or b"" when the program has ended."""
        async with asyncio.timeout(timeout_s):
            while not self._closed:
                try:
                    return os.read(self._output_fd, READ_BYTES)
                except BlockingIOError:
                    # Do not wait for a process that the program left behind, which may still hold the terminal.
                    if self._exited.done():
                        break
                    await self._wait_for(self._output_fd, "reader")
                except OSError:  # nobody holds the other end
                    break
        return b""

    async def write(self, data: str | bytes) -> None:
        """Type `data`."""
        if isinstance(data, str):
            data = data.encode()
        left = memoryview(data)
        while left:
            if self.has_ended:
                raise SandboxPtyError("cannot write to a terminal whose program has ended")
            try:
                left = left[os.write(self._input_fd, left) :]
            except BlockingIOError:
                await self._wait_for(self._input_fd, "writer")
            except OSError as error:
                raise SandboxPtyError(f"cannot write to the terminal: {error}") from error

    async def resize(self, rows: int, cols: int) -> None:
        """Change the size of the terminal; plain streams have none."""
        if self._output_fd == self._input_fd and not self._closed:
            set_size(self._output_fd, rows, cols)

    async def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the program to end and return its return code. Unread output can block the program."""
        async with asyncio.timeout(timeout_s):
            code = await asyncio.shield(self._exited)
        if self._return_code is None:
            if self._report is not None and (report := os.pread(self._report.fileno(), READ_BYTES, 0)):
                code = json.loads(report)["return_code"]
            self._return_code = to_exit_code(code)
        return self._return_code

    async def close(self) -> None:
        """End the program and everything it started; idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            if not self._exited.done():
                await end_process(self._process, self._interrupt, self._grace_s)
            await self.wait()
        finally:
            for fd in {self._output_fd, self._input_fd}:
                os.close(fd)
            if self._report is not None:
                self._report.close()

    async def _wait_for(self, fd: int, kind: Literal["reader", "writer"]) -> None:
        """Wait until `fd` can be used, or the program has ended."""
        loop = asyncio.get_running_loop()
        usable = asyncio.Event()
        getattr(loop, f"add_{kind}")(fd, usable.set)
        waiting = asyncio.ensure_future(usable.wait())
        try:
            await asyncio.wait([waiting, self._exited], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            getattr(loop, f"remove_{kind}")(fd)


async def open_terminal(
    argv: Sequence[str],
    spec: SandboxPtySpec,
    *,
    env: Mapping[str, str],
    controlling: bool,
    pass_fds: Sequence[int] = (),
    interrupt: Callable[[], Awaitable[None]] | None = None,
    report: IO[bytes] | None = None,
    grace_s: float | None = None,
) -> TerminalSession:
    """Start `argv` in its own terminal, or with plain streams if `spec` says so.

    `controlling` makes it the controlling terminal of `argv`, so that Ctrl-C and resizes reach the program.
    If `argv` runs the program for us, it writes the program's `return_code` to `report`, as JSON. `grace_s` is how long
    it may take to end when it is asked to.
    """
    if spec.pty:
        ours, theirs = os.openpty()
        output_fd = ours
        input_fd = ours
        their_input = theirs
        their_output = theirs
    else:
        # Not a socket pair: bash takes one for a remote login and reads its startup files.
        output_fd, their_output = os.pipe()
        their_input, input_fd = os.pipe()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(their_input, termios.TIOCSCTTY, 0)

    with contextlib.ExitStack() as on_failure:
        for fd in {output_fd, input_fd}:
            on_failure.callback(os.close, fd)
            os.set_blocking(fd, False)
        try:
            if spec.pty:
                set_size(their_input, spec.rows, spec.cols)
            preexec_fn = take_terminal if controlling and spec.pty else None
            streams = (their_input, their_output, their_output)
            process = await spawn(argv, env, streams, pass_fds, interrupt, preexec_fn, grace_s)
        except OSError as error:
            raise SandboxPtyError(f"cannot open a terminal: {error}") from error
        finally:
            for fd in {their_input, their_output}:
                os.close(fd)
        on_failure.pop_all()
    return TerminalSession(
        process, output_fd=output_fd, input_fd=input_fd, interrupt=interrupt, report=report, grace_s=grace_s
    )


def set_size(fd: int, rows: int, cols: int) -> None:
    """Set the size of a terminal."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
