# SPDX-License-Identifier: Apache-2.0
"""One server in a process of its own: started with its socket already bound, watched, and stopped for good.

The child says over a pipe that it is ready, so there is no polling. It leads a process group, and signals go to the
group, so that whatever the child started ends with it.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym._servers.processes.entrypoint import LIFELINE_FD, LISTEN_FD, READY_FD
from nemo_gym._servers.processes.server_logs import SHOWN_LINES
from nemo_gym._util.known_secrets import KNOWN_SECRETS
from nemo_gym.errors import GymError

_LINE_LIMIT = 1 << 20
_INTERRUPT_GRACE_S = 5.0
_TERMINATE_GRACE_S = 2.0


class ServerDied(GymError, RuntimeError):
    """A server ended without being stopped, or could not be started at all."""

    def __init__(self, name: str, how: str, last_lines: Sequence[str] = ()) -> None:
        super().__init__(name, how, tuple(last_lines))
        self.name = name
        self.how = how
        self.last_lines = tuple(last_lines)

    def __str__(self) -> str:
        return f"server {self.name!r} {self.how}.{_format_last_lines(self.last_lines)}"


class ServerLate(GymError, RuntimeError):
    """Servers did not become ready within the deadline; `late` has the last lines of each."""

    def __init__(self, timeout_s: float, late: Mapping[str, Sequence[str]]) -> None:
        super().__init__(timeout_s, late)
        self.timeout_s = timeout_s
        self.late = late

    def __str__(self) -> str:
        each = (
            f"server {name!r} was not ready within {self.timeout_s:g} s.{_format_last_lines(lines)}"
            for name, lines in self.late.items()
        )
        return "\n".join(
            [*each, "hint: if it needs longer to load, raise `++server_startup_timeout_seconds=<seconds>`"]
        )


def _format_last_lines(lines: Sequence[str]) -> str:
    if not lines:
        return " It printed nothing."
    return "\nits last lines:\n" + "\n".join(f"  {line}" for line in lines)


@dataclass(frozen=True)
class ChildSpec:
    """What to start."""

    name: str
    python: Path
    folder: Path
    entrypoint: str
    host: str
    port: int
    environment: Mapping[str, str]
    module: str = "nemo_gym._servers.processes.entrypoint"
    """What the interpreter runs, with `entrypoint` as its argument."""


class ServerProcess:
    """A server process."""

    def __init__(
        self, spec: ChildSpec, process: asyncio.subprocess.Process, pipes: "_Pipes", on_line: Callable[[str], None]
    ) -> None:
        self.spec = spec
        self.process = process
        self._pipes = pipes
        self._lines: deque[str] = deque(maxlen=SHOWN_LINES)
        self._pump = asyncio.create_task(self._take_lines(on_line))

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def last_lines(self) -> tuple[str, ...]:
        return tuple(self._lines)

    @classmethod
    async def start(cls, spec: ChildSpec, sock: socket.socket, on_line: Callable[[str], None]) -> "ServerProcess":
        """Start the process on `sock`, which is its own from now on; `on_line` gets every line it prints."""
        pipes = _Pipes()
        passed = {**pipes.passed, LISTEN_FD: sock.fileno()}
        try:
            process = await asyncio.create_subprocess_exec(
                str(spec.python),
                "-m",
                spec.module,
                spec.entrypoint,
                cwd=spec.folder,
                env={**spec.environment, **{name: str(fd) for name, fd in passed.items()}, "PYTHONUNBUFFERED": "1"},
                pass_fds=tuple(passed.values()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipes.child_output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except BaseException as error:
            pipes.close()
            if isinstance(error, OSError):
                raise ServerDied(spec.name, f"could not be started: {error}") from error
            raise
        finally:
            pipes.hand_over()
            sock.close()  # else the port would stay bound after the child's death
        return cls(spec, process, pipes, on_line)

    async def ready(self) -> None:
        """Return when the server listens. If it ends before, this waits forever; use `died` as well."""
        await self._pipes.byte()

    async def wait_for_death(self) -> ServerDied:
        """Wait for the end of the process and say how it ended."""
        code = await self.process.wait()
        with contextlib.suppress(TimeoutError):  # a grandchild may hold the pipe open
            async with asyncio.timeout(1.0):
                await asyncio.shield(self._pump)
        return ServerDied(self.spec.name, describe_exit(code), self.last_lines)

    async def stop(self) -> None:
        """End the whole process group, and what has left it: ask, ask firmly, kill."""
        started = _list_descendants(self.pid)
        for number, grace_s in ((signal.SIGINT, _INTERRUPT_GRACE_S), (signal.SIGTERM, _TERMINATE_GRACE_S)):
            self._signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self.process.wait()
                    break
        self._signal(signal.SIGKILL)
        _kill(started)
        await self.process.wait()
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        self._pipes.close()

    async def _take_lines(self, on_line: Callable[[str], None]) -> None:
        async with self._pipes.reader() as reader:
            while True:
                try:
                    raw = await reader.readline()
                except ValueError:  # a line longer than the limit: skip it rather than block the child
                    continue
                if not raw:
                    return
                line = KNOWN_SECRETS.mask(raw.decode("utf-8", errors="replace").rstrip("\r\n"))
                self._lines.append(line)
                on_line(line)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class _Pipes:
    """The pipes between a child and its parent.

    One that the parent holds while it lives, one for the word `ready`, one for what the child prints. The last is not
    asyncio's, with which a process counts as running as long as somebody, such as a grandchild, holds its output.
    """

    def __init__(self) -> None:
        child_lifeline, self._lifeline = os.pipe()
        self._ready, child_ready = os.pipe()
        output, self.child_output = os.pipe()
        self._output = os.fdopen(output, "rb", buffering=0)
        os.set_blocking(self._ready, False)
        self.passed = {LIFELINE_FD: child_lifeline, READY_FD: child_ready}

    def hand_over(self) -> None:
        """Close the child's ends, once the child has them."""
        for fd in (*self.passed.values(), self.child_output):
            os.close(fd)

    @contextlib.asynccontextmanager
    async def reader(self) -> AsyncIterator[asyncio.StreamReader]:
        """Yield what the child prints."""
        reader = asyncio.StreamReader(limit=_LINE_LIMIT)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._output
        )
        try:
            yield reader
        finally:
            transport.close()

    async def byte(self) -> None:
        """Wait for the word."""
        loop = asyncio.get_running_loop()
        said: asyncio.Future[None] = loop.create_future()

        def look() -> None:
            loop.remove_reader(self._ready)
            if os.read(self._ready, 1) and not said.done():
                said.set_result(None)

        loop.add_reader(self._ready, look)
        try:
            await said
        finally:
            loop.remove_reader(self._ready)

    def close(self) -> None:
        """Close our ends; a child that still lives ends by that."""
        for fd in (self._lifeline, self._ready):
            os.close(fd)
        self._output.close()


def _list_descendants(pid: int) -> list[Any]:
    import psutil  # 20 ms, and only needed where there are processes

    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def _kill(processes: Sequence[Any]) -> None:
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def describe_exit(code: int) -> str:
    """Return an exit code in words."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}"
