# SPDX-License-Identifier: Apache-2.0
"""The trusted process of a sandbox: it forks a child for every piece of code, watches it, and removes its traces.

It has imported what most programs import, so that a child is ready at once. It has one socket, to the server, which
children never hold. Every answer says whether all traces of the code are gone; if not, the server replaces the sandbox.
"""

import contextlib
import fcntl
import gc
import importlib
import json
import os
import secrets
import signal
import site
import socket
import stat
import struct
import sys
import time
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from nemo_gym._isolation.inside import containment, untrusted_code, watching
from nemo_gym._isolation.inside.containment import Baseline, Rules
from nemo_gym._isolation.inside.private_copies import receive_message, send_message, write_all
from nemo_gym._isolation.inside.watching import CodeProcess, ServerGone

INTERRUPT_GRACE_S = 1.0
SEND_PATIENCE_S = 5
FIRST_IMPORT_FD = 100
NUMBER_BYTES = 8


def main(control_fd: int) -> None:
    """Read the rules, then answer requests until the server is gone."""
    control = socket.socket(fileno=control_fd)
    try:
        asked, settings = _receive(control)
    except EOFError:  # the server ended before it sent the rules; our folder may exist already
        with contextlib.suppress(OSError):
            os.rmdir(os.environ["HOME"])
        return
    rules = Rules(**settings["rules"])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if not rules.has_own_pids:
        watching.fork_below_keeper(rules)
    sys.path[:] = [entry for entry in sys.path if entry] + settings["sys_path"]
    site.setquit()
    for name in settings["preload"]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    import_fds = 0
    if rules.uid is not None:
        import_fds = _open_import_folders()
    for folder in rules.folders:
        containment.empty_folder(folder)  # imported modules may have written caches
    gc.collect()
    gc.freeze()
    baseline = containment.prepare(rules)
    zygote = Zygote(control, rules, baseline, import_fds)
    try:
        _send(control, asked, {"has_file_rules": rules.has_own_pids or baseline.file_rules is not None})
        while True:
            asked, request = _receive(control)
            _send(control, asked, zygote.answer(request))
    except (ServerGone, EOFError, OSError):
        watching.forget_keeper()
        containment.kill_all(rules)
        containment.remove_folders(rules)


class Zygote:
    """Runs one piece of code at a time, or one session."""

    def __init__(self, control: socket.socket, rules: Rules, baseline: Baseline, import_fds: int) -> None:
        self._control = control
        self._rules = rules
        self._baseline = baseline
        self._import_fds = import_fds
        self._session: CodeProcess | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what `request` asks for."""
        begin = time.monotonic()
        if request["op"] == "end_session":
            self._end_session()
            return {"is_clean": self._clean()}
        if request["op"] == "cell":
            answer = self._run_cell(request)
        else:
            oom_kills = watching.count_oom_kills()
            answer = self._run(request)
            # The kernel kills the code first when memory runs out, whoever used it up.
            may_be_killed = answer["status"] in ("killed", "error")
            answer["is_lost"] = may_be_killed and watching.count_oom_kills() > oom_kills
        if self._session is None:
            answer["is_clean"] = self._clean()
        return {"is_clean": True, "elapsed_s": time.monotonic() - begin, **answer}

    def _run(self, request: dict[str, Any]) -> dict[str, Any]:
        child = self._start(request, request.get("stdin", ""))
        try:
            if request["op"] == "call":
                return self._call(child, request["timeout_s"])
            return self._end_child(child, self._watch(child, request["timeout_s"]))
        finally:
            child.close()

    def _call(self, child: CodeProcess, timeout_s: float) -> dict[str, Any]:
        """Wait until the program has run, then send it the task and a nonce; accept no value without that nonce.

        The task is the server's second message, which is not read before the program has a process of its own.
        """
        begin = time.monotonic()
        cause = self._watch(child, timeout_s, until_report=True)
        _, task = _receive(self._control)
        nonce = secrets.token_hex(16)
        said = list(watching.read_reports(child))
        if said == [{"ran": child.key}] and cause is None:
            with contextlib.suppress(OSError):  # it ended since
                _send_to_child(child, json.dumps({**task, "nonce": nonce}).encode())
        elif child.written[child.report] and {"memory": True} not in said:
            cause = cause or "killed"  # the code tried to forge a report
        if cause is None:
            used_s = time.monotonic() - begin - containment.measure_waiting(child.pid)
            cause = self._watch(child, max(timeout_s - used_s, 0.0))
        answer = self._end_child(child, cause)
        proof = {"key": child.key, "nonce": nonce}
        verdicts = (said for said in watching.read_reports(child) if proof.items() <= said.items())
        return {**answer, "value": next(verdicts, {}).get("value")}

    def _run_cell(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a cell of the session, starting one if needed; `state_lost` says whether its variables are gone."""
        if self._session is None:
            self._session = self._start({"op": "session"}, "")
        child = self._session
        child.forget_written()
        containment.signal_all(self._rules, signal.SIGCONT)
        cause = self._send_cell(child, request)
        watching.read_rest(child, self._rules)
        is_alive = os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        if is_alive and cause in (None, "interrupted"):
            # The session does not run between two cells.
            containment.signal_all(self._rules, signal.SIGSTOP)
            answer = watching.describe_end(child, self._rules, "timeout" if cause else None, None)
            if answer["status"] == "ok" and answer["cell_status"] != 0:
                answer["status"] = "error"
            if answer["status"] != "memory":
                return {**answer, "exit_code": answer["cell_status"], "state_lost": False}
            cause = "memory"  # its variables would take it from the next cells too
        answer = self._end_child(child, cause)
        self._end_session()
        if answer["status"] == "ok":
            answer["status"] = "error"
        return {**answer, "state_lost": True}

    def _send_cell(self, child: CodeProcess, request: dict[str, Any]) -> str | None:
        """Send a cell and wait for its end; interrupt a cell that takes too long before killing it."""
        source = request["source"].encode(errors="replace")
        try:
            _send_to_child(child, source)
        except OSError:
            return "killed"
        cause = self._watch(child, request["timeout_s"], until_report=True)
        if cause != "timeout":
            return cause
        os.kill(child.pid, signal.SIGINT)
        cause = self._watch(child, INTERRUPT_GRACE_S, until_report=True)
        return cause or "interrupted"

    def _watch(self, child: CodeProcess, timeout_s: float, *, until_report: bool = False) -> str | None:
        control = self._control.fileno()
        return watching.watch(child, self._rules, self._baseline, timeout_s, control, until_report=until_report)

    def _end_child(self, child: CodeProcess, cause: str | None) -> dict[str, Any]:
        """Reap a child that ended, or kill it; then kill all other processes of the code."""
        if cause is not None:
            os.kill(child.pid, signal.SIGKILL)
        status = os.waitpid(child.pid, 0)[1]
        containment.kill_all(self._rules)
        watching.read_rest(child, self._rules)
        exit_code = os.waitstatus_to_exitcode(status)
        return watching.describe_end(child, self._rules, cause, exit_code)

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _clean(self) -> bool:
        is_gone = containment.kill_all(self._rules) and containment.wipe(self._rules)
        return is_gone and containment.is_unchanged(self._baseline)

    def _start(self, request: dict[str, Any], stdin: str) -> CodeProcess:
        stdin_fd = os.memfd_create("stdin")
        write_all(stdin_fd, stdin.encode(errors="replace"))
        os.lseek(stdin_fd, 0, os.SEEK_SET)
        out, out_theirs = os.pipe()
        err, err_theirs = os.pipe()
        ours, theirs = socket.socketpair()
        # A child that does not read must not block us.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_PATIENCE_S, 0))
        report = ours.detach()
        report_theirs = theirs.detach()
        child_fds: tuple[int, ...] = (stdin_fd, out_theirs, err_theirs, report_theirs)
        key = secrets.token_hex(16)
        pid = os.fork()
        if pid == 0:
            try:
                if request.get("is_apart"):
                    request, child_fds = _fork_program(request, child_fds)
                _confine_child(child_fds, self._rules, self._baseline, self._import_fds)
                untrusted_code.become_program(request, key if request["op"] != "serve" else "")
            except OSError as error:
                os.write(2, f"cannot confine the code: {error}\n".encode())
            finally:
                os._exit(1)
        for fd in child_fds:
            os.close(fd)
        return CodeProcess(pid, os.pidfd_open(pid), out, err, report, key)


def _fork_program(request: dict[str, Any], fds: tuple[int, ...]) -> tuple[dict[str, Any], tuple[int, ...]]:
    """In a child that tests a program: fork another process for the program, with a socket to the tests only.

    Each of the two gets what it has to do, and the file descriptors it needs.
    """
    tests, program = (end.detach() for end in socket.socketpair())
    if os.fork() == 0:
        return {**request, "op": "serve"}, (*fds[:3], program)
    return {"op": "test", "prelude": request["prelude"]}, (*fds, tests)


def _confine_child(fds: tuple[int, ...], rules: Rules, baseline: Baseline, import_fds: int) -> None:
    """In the child: keep only its own streams and the import folders, and give up all rights."""
    os.setsid()
    # None of them has one of the first three numbers, so no step overwrites what a later one needs.
    for number, fd in enumerate(fds):
        os.dup2(fd, number, inheritable=number <= 2)
    os.chdir(rules.folders[0])
    containment.confine(rules, baseline)
    os.closerange(len(fds), FIRST_IMPORT_FD)
    os.closerange(FIRST_IMPORT_FD + import_fds, 1 << 16)


def _open_import_folders() -> int:
    """Open every folder of `sys.path` that other users cannot reach, and import through it; return how many there are.

    Code can then import from folders that its user cannot reach, such as those of an interpreter in the home of root:
    children keep the file descriptors, which can be read and searched but not written to, and the import system uses
    them. The rules for files apply to them as to any path.
    """
    opened: dict[str, str] = {}
    for folder in dict.fromkeys(filter(os.path.isdir, sys.path)):
        if not _is_open_to_others(folder):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened[folder] = f"/proc/self/fd/{fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_IMPORT_FD)}"
            os.close(fd)
    if opened:
        find = next(hook for hook in sys.path_hooks if "FileFinder" in getattr(hook, "__qualname__", ""))

        def find_by_descriptor(path: str) -> Any:
            for folder, link in opened.items():
                if path == folder or path.startswith(f"{folder}/"):
                    return find(link + path[len(folder) :])
            raise ImportError(path)

        sys.path_hooks.insert(0, find_by_descriptor)
        sys.path_importer_cache.clear()
        PathFinder.invalidate_caches()
    return len(opened)


def _is_open_to_others(folder: str) -> bool:
    ways = {Path(folder), Path(os.path.realpath(folder))}
    return all(os.stat(part).st_mode & stat.S_IXOTH for way in ways for part in way.parents)


def _receive(control: socket.socket) -> tuple[bytes, Any]:
    """Return the number of the server's next message, which is that of the answer too, and the message."""
    message = receive_message(control.fileno())
    return message[:NUMBER_BYTES], json.loads(message[NUMBER_BYTES:])


def _send(control: socket.socket, number: bytes, message: Any) -> None:
    send_message(control.fileno(), number + json.dumps(message).encode())


def _send_to_child(child: CodeProcess, message: bytes) -> None:
    os.set_blocking(child.report, True)
    try:
        send_message(child.report, message)
    finally:
        os.set_blocking(child.report, False)
