# SPDX-License-Identifier: Apache-2.0
"""A process that has loaded what `gym` needs and forks for every command that is asked for: see `warm_start`.

It serves one client, over a socket that it is given, and ends when the client closes that. It is nobody's child, so
that tests which look at their own children do not find it, and it leaves nothing running.
"""

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
from typing import Any

LOADED = (
    "nemo_gym.cli.demo",
    "nemo_gym.cli.env",
    "nemo_gym.cli.eval.reverify",
    "nemo_gym._servers.launching.launch",
    "uvloop",
    "httptools",
)
_MAX_REQUEST_BYTES = 1 << 20
_STREAMS = 3


def main() -> None:
    """Load, then fork; what is forked leaves this function by running its command."""
    control = socket.socket(fileno=int(sys.argv[1]))
    if os.fork():
        os._exit(0)
    for name in LOADED:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a fork copies no threads"
    if (request := Forks(control).serve()) is not None:
        run(request)


class Forks:
    """The processes that were forked and have not ended, and the line to the client."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._reports = dict[int, int]()
        """By process, the file descriptor by which the client is told its pid and, in the end, its exit code."""
        self._ends, self._end = os.pipe()
        for fd in (self._ends, self._end):
            os.set_blocking(fd, False)

    def serve(self) -> dict[str, Any] | None:
        """Fork for every request: the request, in the process that is to run it; None when there are no more."""
        signal.set_wakeup_fd(self._end)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        interrupts = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the tests, which then end us
        while True:
            ready, _, _ = select.select([self._control, self._ends], [], [])
            if self._ends in ready:
                os.read(self._ends, 4096)
                self._report_ends()
            if self._control not in ready:
                continue
            text, fds, _, _ = socket.recv_fds(self._control, _MAX_REQUEST_BYTES, _STREAMS + 1)
            if not text:
                for pid in self._reports:
                    os.kill(pid, signal.SIGKILL)
                return None
            if not self._fork(fds):
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, interrupts)
                signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as without the `nohup` that the tests may run under
                self._become_a_process_of_its_own(fds)
                return json.loads(text)

    def _fork(self, fds: list[int]) -> int:
        *streams, report = fds
        pid = os.fork()
        if pid:
            self._reports[pid] = report
            os.write(report, f"{pid}\n".encode())
            for fd in streams:
                os.close(fd)
        return pid

    def _become_a_process_of_its_own(self, fds: list[int]) -> None:
        for number, fd in enumerate(fds[:_STREAMS]):
            os.dup2(fd, number)
        for fd in (*fds, *self._reports.values(), self._control.detach(), self._ends, self._end):
            os.close(fd)

    def _report_ends(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                report = self._reports.pop(ended[0])
                with contextlib.suppress(BrokenPipeError):
                    os.write(report, f"{os.waitstatus_to_exitcode(ended[1])}\n".encode())
                os.close(report)


def run(request: dict[str, Any]) -> None:
    """Do what a fresh interpreter would do before it runs the command, or the program, and then run that."""
    import nemo_gym
    from nemo_gym.cli.main import main as gym

    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[:0] = filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))
    nemo_gym._make_servers_importable()
    sys.argv[:] = ["gym", *request["arguments"]]
    if request["program"] is None:
        gym()
        sys.exit()
    exec(compile(request["program"], "program.py", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
