# SPDX-License-Identifier: Apache-2.0
"""Run model-written Python code in a sandbox: it can affect neither the server nor the next piece of code.

A pool keeps a few sandboxes warm. Each holds an interpreter that forks for every piece of code, so a check takes
milliseconds. Bubblewrap isolates them where it works; otherwise resource limits, a separate user (when run as root)
and a system call filter do what they can, and the log says which applies. For commands in images or in persistent
folders, see `nemo_gym.sandbox`. Linux only.
"""

import asyncio
import importlib.util
import json
import logging
import os
import shutil
import site
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from nemo_gym._isolation.isolation import Isolation
from nemo_gym._isolation.lent_workers import (
    ClosablePool,
    PoolClosed as PoolClosed,
    PoolFull as PoolFull,
    SandboxLost as SandboxLost,
    SandboxUnavailable as SandboxUnavailable,
    Slots,
    WorkerDied,
)
from nemo_gym._isolation.sandbox_workers import SandboxSetup, SandboxWorker, choose_code_isolation, compute_patience

LOG = logging.getLogger(__name__)

Status = Literal["ok", "error", "timeout", "memory", "output", "killed"]
IsolationChoice = Literal["auto", "bubblewrap", "rlimits"]

COMMON_MODULES = (
    "abc", "array", "ast", "base64", "bisect", "calendar", "cmath", "collections.abc", "contextlib", "copy", "csv",
    "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq", "inspect", "io",
    "itertools", "json", "math", "numbers", "operator", "os", "queue", "random", "re", "statistics", "string", "struct",
    "sys", "textwrap", "threading", "time", "traceback", "types", "typing", "unicodedata", "uuid", "zlib",
    "encodings.ascii", "encodings.latin_1",
)  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """Resource limits of a piece of code."""

    memory_mib: int = 1024
    """For all its processes together."""
    max_processes: int = 64
    """Including threads."""
    files_mib: int = 64
    """For all its files together; without bubblewrap, for each file."""
    max_open_files: int = 256
    max_output_bytes: int = 4 * 1024 * 1024
    """For stdout, stderr and the result of a call together."""


@dataclass(frozen=True)
class CodeResult:
    """How a piece of code ended. Errors in the code are values here, never exceptions."""

    status: Status
    """`ok`: exit code 0. `error`: any other exit code, e.g. after an exception. `timeout`, `memory`, `output`: it
    exceeded that limit. `killed`: ended by a signal, e.g. after a crash, or stopped for having too many processes."""
    stdout: str
    stderr: str
    """Only the end if it is long."""
    exit_code: int | None
    """Negative: the signal that ended it. None: still running, as in a session."""
    elapsed_s: float
    value: Any = None
    """After a call: what the function returned. In a session: the `repr` of the last expression, unless None."""
    exited: bool = False
    """Whether it ended itself by SystemExit, with any code."""
    state_lost: bool = False
    """In a session: whether its variables are lost because its process ended."""

    @property
    def error(self) -> str:
        """Return what went wrong, in one line; empty if nothing did."""
        if self.status == "error":
            return next(reversed(self.stderr.strip().splitlines()), f"ended with exit code {self.exit_code}")
        return _ERRORS[self.status]


_ERRORS = {
    "ok": "",
    "timeout": "took too long",
    "memory": "used too much memory",
    "output": "wrote too much output",
    "killed": "crashed, or was stopped for having too many processes",
}


@dataclass(frozen=True)
class Harness:
    """Code that tests a program: calls go to a function of the harness instead of one of the program."""

    source: str
    entry_points: Sequence[str] | None = None
    """The names it takes from the program. None: those it uses that only the program defines."""
    given: str = ""
    """Code that both the program and the harness may use; its names are visible to the program."""
    is_apart: bool = False
    """Whether it runs in its own process and gets only plain values from the program.

    A program that wants to deceive the harness can do so if they share a process.
    """


# As far as we know, code cannot end its sandbox; if something else did, a second try may succeed.
_SANDBOXES_FOR_ONE = 2


class CodePool(ClosablePool):
    """`await pool.run(source, stdin=…)` runs a program; `call` calls one of its functions; `session` keeps variables.

    Sandboxes start on first use and end with `aclose`, `close_with(app)`, or this process, however it ends.
    """

    def __init__(
        self,
        workers: int = 2,
        limits: Limits = Limits(),
        *,
        timeout_s: float = 10.0,
        max_queue: int = 10_000,
        max_sessions: int = 256,
        preload: Sequence[str] = COMMON_MODULES,
        import_paths: Sequence[str] = (),
        isolation: IsolationChoice = "auto",
        bubblewrap: str = "bwrap",
    ) -> None:
        """Run `workers` programs at once, queue up to `max_queue`, and keep up to `max_sessions` sessions besides.

        `timeout_s` applies to each run or call and excludes time spent waiting for a CPU. `import_paths` are folders
        that code may import from in addition to the standard library; see `installed_packages` and `find_package`.
        """
        super().__init__("code pool")
        self._size = workers
        self._max_queue = max_queue
        self._max_sessions = max_sessions
        self._timeout_s = timeout_s
        self._choice = isolation
        self._setup = SandboxSetup(
            "bubblewrap",
            shutil.which(bubblewrap) or bubblewrap,
            preload=tuple(preload),
            import_paths=tuple(import_paths),
            **asdict(limits),
        )
        self._isolation: Isolation | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._programs: Slots[SandboxWorker] | None = None
        self._sessions: Slots[SandboxWorker] | None = None
        self._deciding: asyncio.Lock | None = None

    @property
    def isolation(self) -> Isolation | None:
        """The isolation in use; None until something has run."""
        return self._isolation

    async def start(self, count: int | None = None) -> None:
        """Start `count` sandboxes ahead of use; by default all of them."""
        if count is None:
            count = self._size
        await self._slots()[0].start(count)

    async def run(
        self, source: str, *, stdin: str = "", prelude: str = "", timeout_s: float | None = None
    ) -> CodeResult:
        """Run a whole program, with the names that the trusted code `prelude` defines."""
        return await self._run_once({"op": "run", "source": source, "stdin": stdin, "prelude": prelude}, timeout_s)

    async def call(
        self,
        source: str,
        function: str,
        arguments: Sequence[Any] = (),
        *,
        prelude: str = "",
        harness: Harness | None = None,
        timeout_s: float | None = None,
    ) -> CodeResult:
        """Run a program, then call a function that it defines, or a method of its class `Solution`.

        With a `harness`, call a function of the harness. Arguments and result are passed as JSON, so a tuple comes back
        as a list. The program is not `__main__`, and cannot see the harness or the arguments until it has run.
        """
        request = {"op": "call", "source": source, "prelude": prelude, "given": "", "is_apart": False}
        task = {"function": function, "arguments": list(arguments), "harness": None, "entry_points": None}
        if harness is not None:
            request |= {"given": harness.given, "is_apart": harness.is_apart}
            task["harness"] = harness.source
            if harness.entry_points is not None:
                task["entry_points"] = list(harness.entry_points)
        result = await self._run_once(request, timeout_s, task)
        if result.status != "ok":
            return result
        if result.value is None:
            return replace(result, status="error", stderr=f"{result.stderr}{function} ended the program\n")
        try:
            return replace(result, value=json.loads(result.value))
        except (ValueError, RecursionError):
            stderr = f"{result.stderr}{function} returned no JSON value\n"
            return replace(result, status="error", value=None, stderr=stderr)

    async def open_session(self) -> "CodeSession":
        """Return a session that keeps variables between pieces of code; close it after use."""
        lent = AsyncExitStack()
        worker = await lent.enter_async_context(self._slots()[1].lend())
        return CodeSession(worker, lent, self._timeout_s)

    @asynccontextmanager
    async def session(self) -> AsyncIterator["CodeSession"]:
        """Open a session and close it at the end of the block."""
        session = await self.open_session()
        try:
            yield session
        finally:
            await session.aclose()

    async def aclose(self) -> None:
        """End all sandboxes and kill the code running in them."""
        self._is_closed = True
        for worker in self._end():
            await asyncio.to_thread(worker.wait_until_gone)

    async def _run_once(
        self, request: dict[str, Any], timeout_s: float | None, task: dict[str, Any] | None = None
    ) -> CodeResult:
        """Run something in a sandbox, and in a second one if the first is lost; raise SandboxLost if both are."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        cause = ""
        for _ in range(_SANDBOXES_FOR_ONE):
            async with self._slots()[0].lend() as worker:
                try:
                    return await _ask(worker, request, limit_s, task)
                except WorkerDied as error:
                    cause = str(error)
        self._refuse_if_closed()
        raise SandboxLost(f"{cause}, twice")

    def _slots(self) -> tuple[Slots[SandboxWorker], Slots[SandboxWorker]]:
        self._refuse_if_closed()
        loop = asyncio.get_running_loop()
        if self._programs is None or self._sessions is None or self._loop is not loop:
            self._end()  # these sandboxes belong to an event loop that has ended
            self._loop = loop
            self._deciding = asyncio.Lock()
            self._programs = Slots("code pool", self._start_worker, size=self._size, max_queue=self._max_queue)
            self._sessions = Slots(
                "code sessions", self._start_worker, size=self._max_sessions, max_queue=self._max_queue
            )
        return self._programs, self._sessions

    async def _start_worker(self) -> SandboxWorker:
        if self._isolation is None and self._deciding is not None:
            async with self._deciding:
                self._isolation = self._isolation or await choose_code_isolation(self._setup, self._choice)
        return await SandboxWorker.start(replace(self._setup, isolation=self._isolation or "rlimits"))

    def _end(self) -> list[SandboxWorker]:
        ended = [worker for slots in (self._programs, self._sessions) if slots is not None for worker in slots.end()]
        self._programs = self._sessions = None
        return ended


class CodeSession:
    """An interpreter that keeps its variables, and is paused between pieces of code."""

    def __init__(self, worker: SandboxWorker, lent: AsyncExitStack, timeout_s: float) -> None:
        self._worker = worker
        self._lent = lent
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()

    async def run(self, source: str, *, timeout_s: float | None = None) -> CodeResult:
        """Run a piece of code; if it ends its process, the next piece starts without variables.

        Code that takes too long is interrupted, which keeps the variables, and killed if that fails. Raise SandboxLost
        if the sandbox ended; all variables are then lost.
        """
        async with self._turn:
            limit_s = self._timeout_s if timeout_s is None else timeout_s
            try:
                return await _ask(self._worker, {"op": "cell", "source": source}, limit_s)
            except WorkerDied as error:
                raise SandboxLost(str(error)) from error

    @property
    def is_usable(self) -> bool:
        """Whether more code can run; False once the sandbox is lost."""
        return self._turn.locked() or self._worker.is_usable

    async def aclose(self) -> None:
        """End the interpreter and return the sandbox to the pool."""
        async with self._turn, self._lent:
            if self._worker.is_usable:
                # A sandbox that does not answer is not reused.
                with suppress(WorkerDied, TimeoutError):
                    await self._worker.ask({"op": "end_session"}, compute_patience(0.0))


def installed_packages() -> list[str]:
    """Return the folders of the installed packages, for the `import_paths` of a pool."""
    return [path for path in [*site.getsitepackages(), site.getusersitepackages()] if path in sys.path]


def find_package(name: str) -> list[str]:
    """Return the folders of one installed package and of its libraries, for `import_paths`; none if it is missing."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return []
    return [
        path
        for folder in spec.submodule_search_locations or ()
        for path in (folder, f"{folder}.libs")
        if os.path.isdir(path)
    ]


async def _ask(
    worker: SandboxWorker, request: dict[str, Any], timeout_s: float, task: dict[str, Any] | None = None
) -> CodeResult:
    """Return how the code ended; raise WorkerDied if the sandbox around it ended or hung."""
    try:
        answer = await worker.ask({**request, "timeout_s": timeout_s}, compute_patience(timeout_s), task)
        if answer.get("is_lost"):
            raise WorkerDied("the kernel killed it because the machine ran out of memory")
    except (WorkerDied, TimeoutError) as error:
        cause = str(error)
        if isinstance(error, TimeoutError):
            cause = "a sandbox did not answer in time"
        LOG.warning("replacing a sandbox for model-written code: %s", cause)
        raise WorkerDied(cause) from error
    return CodeResult(**{name: answer[name] for name in CodeResult.__dataclass_fields__ if name in answer})
