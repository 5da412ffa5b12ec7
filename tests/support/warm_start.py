# SPDX-License-Identifier: Apache-2.0
"""`gym` commands in processes of their own that start in no time: forked from one that has loaded the libraries.

To the system, and to a test that kills it, such a process is like any other: it has its own pid, folder, environment,
streams and exit code. What it does not have is a command line and a first environment of its own to be seen in /proc,
and it does not show how `gym` loads: tests about these start an interpreter.
"""

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from tests.support import warm_server

Stream = IO[Any] | int | None


class WarmProcess:
    """A running command, with the part of the interface of `subprocess.Popen` that tests need.

    With `program`, which is Python, that runs instead of `gym`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        stdout: Stream = None,
        stderr: Stream = None,
        program: str | None = None,
    ) -> None:
        self.args, self.returncode = list(arguments), None
        environment = dict(os.environ if env is None else env)
        request = {"arguments": self.args, "cwd": str(cwd), "env": environment, "program": program}
        with ExitStack() as given, open(os.devnull) as nothing:
            self.stdout, out = _stream(stdout, sys.__stdout__, given)
            self.stderr, err = (None, out) if stderr == subprocess.STDOUT else _stream(stderr, sys.__stderr__, given)
            self._report, report = _pipe(given)
            message = json.dumps(request).encode()
            socket.send_fds(_server(), [message], [nothing.fileno(), out, err, report])
        self.pid = self._told()

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], timeout)[0]:
            self.returncode = self._told()
            self._report.close()
        return self.returncode

    def _told(self) -> int:
        line = self._report.readline()
        assert line, "the process that forks has ended; what it said is above"
        return int(line)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(arguments: Sequence[str], *, cwd: Path, timeout: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and give what it printed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = WarmProcess(arguments, cwd=cwd, stdout=out, stderr=err, **options)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read())
    return subprocess.CompletedProcess(process.args, code, *said)


def _stream(wanted: Stream, default: IO[Any], given: ExitStack) -> tuple[IO[str] | None, int]:
    """Our end, if it is a pipe, and the end that the process gets."""
    if wanted == subprocess.PIPE:
        return _pipe(given)
    if wanted == subprocess.DEVNULL:
        return None, given.enter_context(open(os.devnull, "w")).fileno()
    if isinstance(wanted, int):
        return None, wanted
    return None, (wanted or default).fileno()


def _pipe(given: ExitStack) -> tuple[IO[str], int]:
    ours, theirs = os.pipe()
    given.callback(os.close, theirs)
    return os.fdopen(ours), theirs


@functools.cache
def _server() -> socket.socket:
    """The line to the process that forks; it ends when this one does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.run(
            [sys.executable, warm_server.__file__, str(theirs.fileno())],
            cwd=Path(__file__).parents[2],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )
    atexit.register(ours.close)
    return ours
