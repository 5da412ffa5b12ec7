# SPDX-License-Identifier: Apache-2.0
"""The server's side of CPU workers: start the template that forks them, and call one."""

import contextlib
import io
import os
import pickle
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nemo_gym._isolation import cpu_template
from nemo_gym._isolation.cpu_template import COMMAND, KILL, LENGTH, MAIN_ALIAS, START
from nemo_gym._isolation.lent_workers import PoolClosed, WorkerChannel, WorkerDied

START_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 5.0


class Template:
    """The process that forks workers; it is restarted if it dies."""

    def __init__(self, preload: Sequence[str], *, main_path: str | None = None) -> None:
        """`preload` are modules to import once. `main_path` is the main module of this process, if it has the calls."""
        self._preload = tuple(preload)
        self._main_path = main_path
        self._lock = threading.Lock()
        self._stop: Callable[[], object] | None = None
        self._control: socket.socket | None = None
        self._is_ended = False

    def start_worker(self) -> "CpuWorker":
        """Fork a worker. This blocks, and for the first worker it takes as long as starting Python and its imports."""
        with self._lock:
            if self._is_ended:
                raise PoolClosed("the CPU pool was closed while it started a worker")
            try:
                return self._start_worker()
            except OSError:
                self._stop_process()  # it may have been killed since the last time
            try:
                return self._start_worker()
            except OSError as error:
                raise WorkerDied(
                    f"the process that starts CPU workers ended at once: {error}\n"
                    f"hint: can all of {', '.join(self._preload) or 'nothing'} be imported? It said why on stderr"
                ) from error

    def kill(self, pid: int) -> None:
        """Kill a worker; if the template is gone, its workers are too."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.sendall(COMMAND.pack(KILL, pid))

    def end(self) -> None:
        """End the template and all its workers for good."""
        with self._lock:
            self._is_ended = True
            self._stop_process()

    def _stop_process(self) -> None:
        if self._stop is not None:
            self._stop()
        self._stop = self._control = None

    def _start_worker(self) -> "CpuWorker":
        control = self._control or self._start()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(control, [COMMAND.pack(START, 0)], [theirs.fileno()])
            answer = control.recv(LENGTH.size, socket.MSG_WAITALL)
            if len(answer) < LENGTH.size:
                raise ConnectionResetError("the process that starts CPU workers has ended")
        except BaseException:
            ours.close()
            raise
        return CpuWorker(self, LENGTH.unpack(answer)[0], ours)

    def _start(self) -> socket.socket:
        control, theirs = socket.socketpair()
        control.settimeout(START_TIMEOUT_S)
        with theirs:
            command = [sys.executable, cpu_template.__file__, str(theirs.fileno())]
            # Equal hashes in every run, so that what depends on the order of a set is the same each time.
            environment = {"PYTHONHASHSEED": "0", **os.environ}
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=environment)
        self._control = control
        self._stop = weakref.finalize(self, _end_template, process, control)
        settings = pickle.dumps({"sys_path": sys.path, "preload": self._preload, "main_path": self._main_path})
        control.sendall(LENGTH.pack(len(settings)) + settings)
        return control


def _end_template(process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
    control.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.2)
        return
    process.kill()  # busy importing
    process.wait(_END_TIMEOUT_S)


class CpuWorker:
    """A process that answers one call after the other."""

    def __init__(self, template: Template, pid: int, sock: socket.socket) -> None:
        self._template = template
        self._pid = pid
        # What runs in it may fork, and its children hold the other end of the socket too.
        self._channel = WorkerChannel(sock, speaker=pid)

    @property
    def is_usable(self) -> bool:
        """Whether it is alive and waits for a call."""
        return self._channel.is_usable

    async def call(self, request: bytes, what: str, timeout_s: float) -> Any:
        """Make a call that `pack_call` packed and return its result; if it does not finish, the worker is unusable."""
        try:
            answer = await self._channel.ask(request, timeout_s=timeout_s)
        except TimeoutError as error:
            raise TimeoutError(f"{what} gave no answer within {timeout_s:g} s and was killed") from error
        except (EOFError, OSError) as error:
            raise WorkerDied(
                f"the process that ran {what} ended without an answer: it crashed, was killed, or ran out of memory"
            ) from error
        succeeded, value, *where = _AnswerUnpickler(io.BytesIO(answer)).load()
        if succeeded:
            return value
        value.add_note(f"in a worker process:\n{where[0]}")
        raise value

    def end(self) -> None:
        """Kill the process."""
        self._template.kill(self._pid)
        self._channel.close()


def pack_call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Return a call as bytes, together with where its modules are."""
    call = pickle.dumps(partial(fn, *args, **kwargs))
    main_path = getattr(sys.modules["__main__"], "__file__", None)
    where = pickle.dumps({"main_path": main_path and os.path.abspath(main_path), "root": _find_import_root(fn)})
    return LENGTH.pack(len(where)) + where + call


_LOADED_ALREADY = pickle.dumps({"main_path": None, "root": None})
_LOADED_ALREADY = LENGTH.pack(len(_LOADED_ALREADY)) + _LOADED_ALREADY


def pack_call_of_preloaded(fn: Callable[..., Any], *args: Any) -> bytes:
    """Return a call as bytes, of a module that the template has imported."""
    return _LOADED_ALREADY + pickle.dumps(partial(fn, *args))


def _find_import_root(fn: Callable[..., Any]) -> str | None:
    """Return the folder from which `fn`'s module is imported: servers import the modules beside them by bare name."""
    name = getattr(fn, "__module__", None)
    file = getattr(sys.modules.get(name or ""), "__file__", None)
    if name is None or name == "__main__" or file is None:
        return None
    path = Path(file).absolute()
    if path.name == "__init__.py":
        path = path.parent
    return str(path.parents[name.count(".")])


class _AnswerUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == MAIN_ALIAS:
            module = "__main__"
        return super().find_class(module, name)
