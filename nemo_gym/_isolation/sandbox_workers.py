# SPDX-License-Identifier: Apache-2.0
"""The server's side of a sandbox for code: start it, send it requests, and end it."""

import asyncio
import contextlib
import functools
import itertools
import json
import logging
import marshal
import os
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import CodeType
from typing import IO, Any, Literal

from nemo_gym._isolation import inside
from nemo_gym._isolation.inside.containment import Rules, remove_folder
from nemo_gym._isolation.inside.process_tree import count_tasks
from nemo_gym._isolation.inside.watching import MAX_EXTENSION
from nemo_gym._isolation.isolation import Isolation, build_bubblewrap_prefix, choose_isolation, list_system_paths
from nemo_gym._isolation.lent_workers import SandboxUnavailable, WorkerChannel, WorkerDied

LOG = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
CLEANING_TIMEOUT_S = 30.0
END_PATIENCE_S = 3.0
MIB = 1024 * 1024
FOLDER_PREFIX = "nemo-gym-code-"
# Imports that must work inside: a Python module, and one that may be a shared library.
FIRST_PROGRAM = "import difflib, _lsprof; print('works')"
FIRST_TIMEOUT_S = 30.0
# User ids that no real user has; as far as they go, each sandbox on the machine has its own.
_FIRST_UID = 1_800_000_000
_NOBODY = 65534
_PATH = "/usr/local/bin:/usr/bin:/bin"
# Equal hashes in every run, so that output that depends on the order of a set is the same each time.
_HASH_SEED = "0"
_counter = itertools.count()

# The modules come over stdin, because this package is not visible from inside.
_BOOTSTRAP = """
import marshal, sys
from importlib.machinery import ModuleSpec

class Sent:
    modules = marshal.load(sys.stdin.buffer)

    def find_spec(name, path=None, target=None):
        return ModuleSpec(name, Sent, is_package=Sent.modules[name] is None) if name in Sent.modules else None

    def create_module(spec):
        return None

    def exec_module(module):
        if code := Sent.modules[module.__name__]:
            module.__file__ = code.co_filename
            exec(code, module.__dict__)

sys.meta_path.insert(0, Sent)
from nemo_gym._isolation.inside.zygote import main
main(int(sys.argv[1]))
"""
_PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))


@dataclass(frozen=True)
class SandboxSetup:
    """The properties of a sandbox, equal for all sandboxes of a pool."""

    isolation: Isolation
    bubblewrap: str
    memory_mib: int
    max_processes: int
    files_mib: int
    max_open_files: int
    max_output_bytes: int
    preload: tuple[str, ...]
    import_paths: tuple[str, ...]
    """What code sees besides the standard library: folders to import from, or the folders of single packages."""


class SandboxWorker:
    """A sandbox that runs one piece of code after another."""

    def __init__(self, process: "subprocess.Popen[bytes]", sock: socket.socket, folder: str | None) -> None:
        self._channel = WorkerChannel(sock)
        self.folder = folder
        self.hides_files = False
        """Whether code in it sees no files but its own and those of the system."""
        self._is_clean = True
        # The sandbox ends with this object even if nobody calls `end`.
        self._finalizer = weakref.finalize(self, _hang_up, process, self._channel, folder)
        self._ending: threading.Thread | None = None

    @classmethod
    async def start(cls, setup: SandboxSetup) -> "SandboxWorker":
        """Start a sandbox and wait until it takes requests.

        This happens in the event loop's thread, because bubblewrap ends with the thread that started it.
        """
        worker, problems = cls._launch(setup)
        with problems:
            try:
                ready = await worker.ask(_build_settings(setup, worker.folder), START_TIMEOUT_S)
                worker.hides_files = ready["has_file_rules"]
            except (WorkerDied, TimeoutError) as error:
                worker.end()
                problems.seek(0)
                said = [str(error), *problems.read().decode(errors="replace").strip().splitlines()]
                raise SandboxUnavailable(said[-1]) from error
            except BaseException:
                worker.end()
                raise
        return worker

    @classmethod
    def _launch(cls, setup: SandboxSetup) -> tuple["SandboxWorker", IO[bytes]]:
        """Start the process; return it and the file with its stderr."""
        ours, theirs = socket.socketpair()
        folder = None
        if setup.isolation == "rlimits":
            folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX)
        problems = tempfile.TemporaryFile()  # noqa: SIM115  the caller closes it
        home = _list_folders(setup, folder)[0]
        environment = {"PATH": _PATH, "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8", "PYTHONHASHSEED": _HASH_SEED}
        with theirs, tempfile.TemporaryFile() as modules:
            modules.write(_compile_inside())
            modules.seek(0)
            process = subprocess.Popen(
                _build_command(setup, theirs.fileno()),
                env=environment,
                cwd="/",
                stdin=modules,
                stdout=subprocess.DEVNULL,
                stderr=problems,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        return cls(process, ours, folder), problems

    @property
    def is_usable(self) -> bool:
        """Whether it is alive, clean and waits for a request."""
        return self._is_clean and self._channel.is_usable

    async def ask(
        self, request: Mapping[str, Any], timeout_s: float, task: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the answer to a request. Without an answer, or if the code left traces, the sandbox is not reused.

        `task` is what the sandbox must not learn before the code of the request has run.
        """
        messages = [json.dumps(message).encode() for message in (request, task) if message is not None]
        self._is_clean = False
        try:
            answer: dict[str, Any] = json.loads(await self._channel.ask(*messages, timeout_s=timeout_s))
        except TimeoutError:  # an OSError too
            raise
        except (EOFError, OSError) as error:
            raise WorkerDied("a sandbox ended without an answer") from error
        self._is_clean = answer.get("is_clean", True)
        return answer

    def end(self) -> None:
        """Kill it and all that runs in it."""
        self._ending = self._finalizer() or self._ending

    def wait_until_gone(self) -> None:
        """Block until nothing is left of a sandbox that was ended."""
        if self._ending is not None:
            self._ending.join()


async def choose_code_isolation(setup: SandboxSetup, wanted: Literal["auto"] | Isolation) -> Isolation:
    """Choose bubblewrap if it is wanted and works here, else limits, and log the choice."""
    if not sys.platform.startswith("linux"):
        raise SandboxUnavailable(
            f"model-written code cannot be contained on {sys.platform!r}\nhint: run it on Linux, or in a container"
        )
    hides_files = False

    async def find_problem(isolation: Isolation) -> str | None:
        nonlocal hides_files
        try:
            worker = await SandboxWorker.start(replace(setup, isolation=isolation, preload=()))
        except (SandboxUnavailable, OSError) as error:
            return str(error)
        hides_files = worker.hides_files
        try:
            request = {"op": "run", "source": FIRST_PROGRAM, "stdin": "", "prelude": "", "timeout_s": FIRST_TIMEOUT_S}
            answer = await worker.ask(request, compute_patience(FIRST_TIMEOUT_S))
        except (WorkerDied, TimeoutError) as error:
            return str(error) or "a sandbox did not answer in time"
        finally:
            worker.end()
            await asyncio.to_thread(worker.wait_until_gone)
        if answer["stdout"] == "works\n":
            return None
        return f"a first program failed: {answer['stderr'].strip().rpartition(chr(10))[2] or answer['status']}"

    chosen = await choose_isolation(wanted, setup.bubblewrap, find_problem)
    problem = chosen.without_bubblewrap
    if chosen.isolation == "bubblewrap":
        LOG.info("model-written code runs under bubblewrap: no network, read-only system, private files")
        return "bubblewrap"
    if chosen.isolation == "rlimits":
        files = "can read this machine's files"
        if hides_files:
            files = "sees no files but the system's"
        LOG.warning("model-written code runs under resource limits only, and %s: %s", files, problem)
        return "rlimits"
    if wanted == "bubblewrap":
        raise SandboxUnavailable(
            f"cannot run model-written code under bubblewrap: {problem}\n"
            "hint: install the package `bubblewrap` and allow user namespaces, or choose another isolation"
        )
    raise SandboxUnavailable(
        f"cannot run model-written code: {problem}; and with limits only: {chosen.without_limits}\n"
        "hint: install the package `bubblewrap`; if a module cannot be imported, use an interpreter whose files every "
        "user may read"
    )


def compute_patience(timeout_s: float) -> float:
    """Return how long to wait for the answer to a request with a time limit, before giving up the sandbox."""
    return timeout_s * (1 + MAX_EXTENSION) + CLEANING_TIMEOUT_S


def _build_command(setup: SandboxSetup, fd: int) -> list[str]:
    command = [_PYTHON, "-S", "-s", "-P", "-B", "-c", _BOOTSTRAP, str(fd)]
    if setup.isolation == "rlimits":
        return command
    options = ["--as-pid-1"]
    if os.geteuid() == 0:
        # No user namespace is needed; the command keeps the right to become another user and to kill its processes.
        options += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_KILL"]
    else:
        options += ["--unshare-user"]
    folders = _list_folders(setup, None)
    mounts = [word for path in folders for word in ("--size", str(setup.files_mib * MIB), "--tmpfs", path)]
    mounts += ["--remount-ro", "/dev", "--remount-ro", "/"]
    paths = _list_own_paths(setup)
    return [
        *build_bubblewrap_prefix(setup.bubblewrap, options, read_only_paths=paths, mounts=mounts, folder=folders[0]),
        *command,
    ]


@functools.cache
def _compile_inside() -> bytes:
    """Return the compiled modules that run inside, without the path of this package, which code must not learn."""
    modules: dict[str, CodeType | None] = {}
    for name in itertools.accumulate(inside.__name__.split("."), "{}.{}".format):
        modules[name] = None
    for source in Path(inside.__file__).parent.glob("*.py"):
        if source.stem != "__init__":
            name = f"{inside.__name__}.{source.stem}"
            modules[name] = compile(source.read_bytes(), f"{name.replace('.', '/')}.py", "exec", dont_inherit=True)
    return marshal.dumps(modules)


def _list_own_paths(setup: SandboxSetup) -> list[str]:
    """Return the folders of the interpreter, which may be reported through a link, and the other import paths."""
    interpreter = [sys.base_prefix, sys.base_exec_prefix, str(Path(_PYTHON).parents[1])]
    return [path for path in dict.fromkeys([*interpreter, *setup.import_paths]) if os.path.exists(path)]


def _list_folders(setup: SandboxSetup, folder: str | None) -> tuple[str, ...]:
    """Return the folders where code may write, its working folder first."""
    if folder is not None:
        return (folder,)
    # Not /tmp if something that code must see lies there.
    if any(Path(path).is_relative_to("/tmp") for path in _list_own_paths(setup)):
        return "/workspace", "/dev/shm"
    return "/tmp", "/dev/shm"


def _build_settings(setup: SandboxSetup, folder: str | None) -> dict[str, Any]:
    uid = None
    other_tasks = 0
    if os.geteuid() == 0:
        uid = _find_unused_uid()
    else:
        other_tasks = count_tasks(os.getuid())
    rules = Rules(
        has_own_pids=setup.isolation == "bubblewrap",
        uid=uid,
        other_tasks=other_tasks,
        folders=_list_folders(setup, folder),
        readable=(*_list_own_paths(setup), *list_system_paths()),
        memory_bytes=setup.memory_mib * MIB,
        max_processes=setup.max_processes,
        max_file_bytes=setup.files_mib * MIB,
        max_open_files=setup.max_open_files,
        max_output_bytes=setup.max_output_bytes,
    )
    return {"rules": asdict(rules), "preload": setup.preload, "sys_path": _list_search_paths(setup)}


def _list_search_paths(setup: SandboxSetup) -> list[str]:
    """Return where code looks for modules. A single package is found in the folder around it, which has no others."""
    is_package = {path: os.path.exists(os.path.join(path, "__init__.py")) for path in setup.import_paths}
    around = {os.path.dirname(path) for path, is_one in is_package.items() if is_one}
    folders = [path for path, is_one in is_package.items() if not is_one and os.path.dirname(path) not in around]
    return [*folders, *sorted(around)]


def _find_unused_uid() -> int:
    uid = _FIRST_UID + (os.getpid() % 100_000) * 1000 + next(_counter) % 1000
    with contextlib.suppress(OSError, ValueError), open("/proc/self/uid_map", encoding="ascii") as ranges:
        for line in ranges:
            first, _, count = map(int, line.split())
            if first <= uid < first + count:
                return uid
    return _NOBODY


def _hang_up(process: "subprocess.Popen[bytes]", channel: WorkerChannel, folder: str | None) -> threading.Thread:
    """Close the socket, so that the sandbox kills its code, removes its folder and ends; a thread waits for that."""
    channel.close()
    waiting = threading.Thread(target=_wait_for_end, args=(process, folder), name="end-of-sandbox", daemon=True)
    waiting.start()
    return waiting


def _wait_for_end(process: "subprocess.Popen[bytes]", folder: str | None) -> None:
    for insist in (process.terminate, process.kill):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_PATIENCE_S)
            break
        insist()
    process.wait()
    if folder is not None:
        with contextlib.suppress(OSError):
            remove_folder(folder)
