# SPDX-License-Identifier: Apache-2.0
"""A clean process that forks CPU workers, which then answer calls. This is a script: see `main`.

It has no threads and no event loop, so forking it is safe, and it has imported what the calls need, so a fork is ready
at once. It uses the standard library only. The calls are trusted code, but they may hang.
"""

import contextlib
import ctypes
import importlib
import io
import os
import pickle
import runpy
import signal
import socket
import struct
import sys
import traceback
from types import ModuleType
from typing import Any

LENGTH = struct.Struct(">Q")
NUMBER_BYTES = 8
COMMAND = struct.Struct(">cQ")
START = b"s"
KILL = b"k"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# The name under which a worker loads the parent's main module, so that `if __name__ == "__main__"` does not run.
MAIN_ALIAS = "__mp_main__"


def main(control_fd: int) -> None:
    """Receive the import path and the modules to import, then commands to start and kill workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the server, which then ends us
    control = socket.socket(fileno=control_fd)
    (size,) = LENGTH.unpack(control.recv(LENGTH.size, socket.MSG_WAITALL))
    settings = pickle.loads(control.recv(size, socket.MSG_WAITALL))
    sys.path[:] = settings["sys_path"]
    for name in settings["preload"]:
        importlib.import_module(name)
    if settings["main_path"] is not None:
        load_main(settings["main_path"])
    adopt_orphans()
    workers: set[int] = set()
    while True:
        command, fds, _, _ = socket.recv_fds(control, COMMAND.size, 1)
        if len(command) < COMMAND.size:
            return
        kind, pid = COMMAND.unpack(command)
        if kind == START:
            control.sendall(LENGTH.pack(start_worker(control, fds[0], workers)))
        elif pid in workers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            workers.discard(pid)
        reap(workers)


def start_worker(control: socket.socket, fd: int, workers: set[int]) -> int:
    """Fork a worker that answers calls over `fd`; return its process id."""
    template = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            control.close()
            die_with(template)
            adopt_orphans()
            answer_calls(socket.socket(fileno=fd))
            status = 0
        finally:
            os._exit(status)
    os.close(fd)
    workers.add(pid)
    return pid


def reap(workers: set[int]) -> None:
    """Reap the workers that have ended, and kill what they have left behind."""
    for pid in list(workers):
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            workers.discard(pid)
    while strays := set(list_children()) - workers:
        for pid in strays:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def list_children() -> list[int]:
    """Return the children of this process, which has one thread; none where the system does not list them."""
    try:
        with open("/proc/thread-self/children", "rb") as listing:
            return list(map(int, listing.read().split()))
    except OSError:
        return []


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own, so that none gets away."""
    with contextlib.suppress(AttributeError, OSError):  # Linux only
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends, even in the middle of a call."""
    with contextlib.suppress(AttributeError, OSError):  # Linux only; elsewhere the closed socket must suffice
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def answer_calls(sock: socket.socket) -> None:
    """Answer calls until the socket is closed."""
    own_pid = os.getpid()
    stream = sock.makefile("rwb")
    while True:
        head = stream.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return
        (size,) = LENGTH.unpack(head)
        message = stream.read(size)
        answer = compute_outcome(message[NUMBER_BYTES:])
        if os.getpid() != own_pid:
            return  # the call has forked, and this is the child: its parent answers
        stream.write(LENGTH.pack(NUMBER_BYTES + len(answer)))
        stream.write(message[:NUMBER_BYTES])
        stream.write(answer)
        stream.flush()


def compute_outcome(request: bytes) -> bytes:
    """Make a pickled call; return the pickled `(True, result)` or `(False, error, traceback)`."""
    try:
        call = CallUnpickler(request).load()
        answer: tuple[Any, ...] = (True, call())
    except Exception as error:
        answer = (False, error, traceback.format_exc())
    try:
        packed = pickle.dumps(answer)
        if not answer[0]:
            pickle.loads(packed)  # errors whose arguments do not fit their constructor fail only here
        return packed
    except Exception as error:
        text = f"the outcome of a call cannot be sent between processes: {answer[1]!r} ({error})"
        return pickle.dumps((False, TypeError(text), answer[-1] if not answer[0] else ""))


class CallUnpickler(pickle.Unpickler):
    """Loads a request: where the modules of the call are, then the pickled call."""

    def __init__(self, request: bytes) -> None:
        (size,) = LENGTH.unpack_from(request)
        where = pickle.loads(request[LENGTH.size : LENGTH.size + size])
        self._main_path: str | None = where["main_path"]
        if where["root"] is not None and where["root"] not in sys.path:
            sys.path.append(where["root"])
        super().__init__(io.BytesIO(memoryview(request)[LENGTH.size + size :]))

    def find_class(self, module: str, name: str) -> Any:
        """Return the object `name`, also from the parent's main module."""
        if module == "__main__" and MAIN_ALIAS not in sys.modules and self._main_path is not None:
            load_main(self._main_path)
        return super().find_class(module, name)


def load_main(path: str) -> None:
    """Load the parent's main module, without what it does as a script."""
    names = runpy.run_path(path, run_name=MAIN_ALIAS)
    loaded = ModuleType(MAIN_ALIAS)
    loaded.__dict__.update(names)
    sys.modules[MAIN_ALIAS] = sys.modules["__main__"] = loaded


if __name__ == "__main__":
    main(int(sys.argv[1]))
