# SPDX-License-Identifier: Apache-2.0
"""One server in a process of its own: started with its socket already bound, watched, and stopped for good.

The child tells over a pipe that it is ready; nobody polls. It leads a process group, and it is the group that gets the
signals, so that whatever the child started goes with it.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym._serving.child import LIFELINE_FD, LISTEN_FD, READY_FD
from nemo_gym.errors import GymError

SHOWN_LINES = 20
_LINE_LIMIT = 1 << 20
_INTERRUPT_GRACE_S, _TERMINATE_GRACE_S = 5.0, 2.0


class ServerDied(GymError):
    """A server process ended although nobody had stopped it."""

    def __init__(self, name: str, how: str, last_lines: Sequence[str] = ()) -> None:
        super().__init__(name, how, tuple(last_lines))
        self.name, self.how, self.last_lines = name, how, tuple(last_lines)

    def __str__(self) -> str:
        return f"server {self.name!r} {self.how}.{_shown(self.last_lines)}"


class ServerLate(GymError):
    """A server process did not become ready within its deadline."""

    def __init__(self, name: str, timeout_s: float, last_lines: Sequence[str] = ()) -> None:
        super().__init__(name, timeout_s, tuple(last_lines))
        self.name, self.timeout_s, self.last_lines = name, timeout_s, tuple(last_lines)

    def __str__(self) -> str:
        return (
            f"server {self.name!r} was not ready within {self.timeout_s:g} s.{_shown(self.last_lines)}\n"
            "hint: if it needs longer to load, raise `server_startup_timeout_seconds`"
        )


def _shown(lines: Sequence[str]) -> str:
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


@dataclass
class Child:
    """A server process."""

    spec: ChildSpec
    process: asyncio.subprocess.Process
    _lifeline: int
    _ready: asyncio.Task[bool]
    _pump: asyncio.Task[None]
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=SHOWN_LINES))

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def last_lines(self) -> tuple[str, ...]:
        return tuple(self._lines)

    @classmethod
    async def start(cls, spec: ChildSpec, sock: socket.socket, on_line: Callable[[str], None]) -> "Child":
        """Start the process on `sock`, which is its own from now on; `on_line` gets every line it prints."""
        lifeline_child, lifeline = os.pipe()
        ready, ready_child = os.pipe()
        passed = {LIFELINE_FD: lifeline_child, READY_FD: ready_child, LISTEN_FD: sock.fileno()}
        try:
            process = await asyncio.create_subprocess_exec(
                str(spec.python),
                "-m",
                "nemo_gym._serving.child",
                spec.entrypoint,
                cwd=spec.folder,
                env={**spec.environment, **{name: str(fd) for name, fd in passed.items()}, "PYTHONUNBUFFERED": "1"},
                pass_fds=tuple(passed.values()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                limit=_LINE_LIMIT,
                start_new_session=True,
            )
        finally:
            os.close(lifeline_child)
            os.close(ready_child)
            sock.close()  # else the port would stay bound after the child's death
        lines: deque[str] = deque(maxlen=SHOWN_LINES)
        return cls(
            spec,
            process,
            lifeline,
            asyncio.create_task(_one_byte(ready)),
            asyncio.create_task(_pump(process, lines, on_line)),
            lines,
        )

    async def wait_until_ready(self, timeout_s: float) -> None:
        """Return when the server listens; raise when it dies or is late."""
        try:
            async with asyncio.timeout(timeout_s):
                if await asyncio.shield(self._ready):
                    return
        except TimeoutError:
            raise ServerLate(self.spec.name, timeout_s, self.last_lines) from None
        raise await self.died()

    async def died(self) -> ServerDied:
        """Wait for the end of the process and say how it ended."""
        code = await self.process.wait()
        with contextlib.suppress(TimeoutError):  # a grandchild may hold the pipe open
            async with asyncio.timeout(1.0):
                await asyncio.shield(self._pump)
        return ServerDied(self.spec.name, how_it_ended(code), self.last_lines)

    async def stop(self) -> None:
        """End the whole process group: ask, ask firmly, kill."""
        for number, grace_s in ((signal.SIGINT, _INTERRUPT_GRACE_S), (signal.SIGTERM, _TERMINATE_GRACE_S)):
            self._signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self.process.wait()
                    break
        self._signal(signal.SIGKILL)
        await self.process.wait()
        for task in (self._ready, self._pump):
            task.cancel()
        await asyncio.gather(self._ready, self._pump, return_exceptions=True)
        with contextlib.suppress(OSError):
            os.close(self._lifeline)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}"


async def _one_byte(fd: int) -> bool:
    """Whether a byte comes before the other end closes."""
    loop = asyncio.get_running_loop()
    seen: asyncio.Future[bool] = loop.create_future()
    os.set_blocking(fd, False)

    def look() -> None:
        if not seen.done():
            seen.set_result(os.read(fd, 1) == b"1")

    loop.add_reader(fd, look)
    try:
        return await seen
    finally:
        loop.remove_reader(fd)
        os.close(fd)


async def _pump(process: asyncio.subprocess.Process, lines: deque[str], on_line: Callable[[str], None]) -> None:
    assert process.stdout is not None
    while True:
        try:
            raw = await process.stdout.readline()
        except ValueError:  # a line longer than the limit: skip it rather than block the child
            continue
        if not raw:
            return
        line = raw.decode("utf-8", errors="replace").rstrip("\r\n")
        lines.append(line)
        on_line(line)
