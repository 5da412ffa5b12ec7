# SPDX-License-Identifier: Apache-2.0
"""What a child does with its code: run it as a program, call a function of it, or run it cell by cell.

The code shares this process, so nothing here can be trusted once it runs: all a child can do is report, and only about
itself. What to call, and the nonce that an answer must contain, arrive only after the program has run, so that it
cannot answer in advance.
"""

import ast
import atexit
import builtins
import contextlib
import io
import linecache
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from types import ModuleType, TracebackType
from typing import Any

from nemo_gym._isolation.inside import harness, remote_objects
from nemo_gym._isolation.inside.containment import hide_from_others
from nemo_gym._isolation.inside.private_copies import (
    BUILTINS,
    decode_json,
    encode_json,
    receive_message,
    write_all,
)

# The functions below use these, whatever the code replaces.
__builtins__ = BUILTINS  # type: ignore[assignment]

REPORT_FD = 3
PROGRAM_FD = 4
PROGRAM_MODULE = "solution"
MEMORY_STATUS = 2
FILE_NAME = "main.py"
MAX_VALUE_CHARS = 20_000

# Kept here because the code may replace them.
_exit = os._exit
_getpid = os.getpid
_TRACERS = (sys.settrace, sys.setprofile)


def become_program(request: dict[str, Any], key: str) -> None:
    """Do what `request` asks for and end the process; `key` proves that an answer is ours."""
    status = 1
    try:
        _open_streams()
        if request["op"] == "session":
            _run_cells()
            status = 0
        elif request["op"] == "run":
            names = _make_module("__main__")
            exec(request["prelude"], names)
            status = _finish(_run_guarded(lambda: _execute(request["source"], names), reports_exit=True))
        elif request["op"] == "test":
            status = _test_program_apart(request["prelude"], key)
        else:
            status = _call_program(request, key)
    except BaseException as error:
        _print_error(error)
    finally:
        _exit(status)


def _call_program(request: dict[str, Any], key: str) -> int:
    """Run the program, then call a function of it, test it, or let another process use what it defines."""
    own_pid = _getpid()
    names = _make_module(PROGRAM_MODULE)
    for code in (request["prelude"], request["given"]):
        exec(compile(code, FILE_NAME, "exec", dont_inherit=True), names)
    given = dict(names)
    serves = request["op"] == "serve"
    if serves:
        remote_objects.wait_for_start(REPORT_FD)
    status = _run_guarded(lambda: _execute_to_its_end(request["source"], names), reports=not serves)
    if _getpid() != own_pid:
        return status  # a fork that the program made
    own = {name: value for name, value in names.items() if value is not given.get(name)}
    if serves and status == 0:
        remote_objects.serve(REPORT_FD, own, remote_objects.find_classes(given, PROGRAM_MODULE), _print_error)
    elif serves:
        remote_objects.report_failure(REPORT_FD, for_memory=status == MEMORY_STATUS)
    elif status == 0:
        task = _receive_task(key)
        status = _run_guarded(lambda: _answer(key, task, _perform(task, given, own, names)))
    return _finish(status)


def _perform(task: dict[str, Any], given: dict[str, Any], own: dict[str, Any], names: dict[str, Any]) -> Any:
    if task["harness"] is None:
        return _call(own, task["function"], task["arguments"])
    for forget in _TRACERS:
        forget(None)  # they would trace the harness too

    def share(defined: Mapping[str, Any]) -> None:
        if task["entry_points"] is not None:
            return
        # The harness of a row without entry points may hold helpers for the program.
        for name, value in defined.items():
            if name != task["function"]:
                names.setdefault(name, value)

    return harness.run("tests", task, given, own, share)


def _test_program_apart(prelude: str, key: str) -> int:
    """Run a harness on a program that runs in another process."""
    hide_from_others()
    remote_objects.allow_start(PROGRAM_FD)
    names = _make_module(PROGRAM_MODULE)
    sys.path.remove(os.getcwd())  # where the program writes
    exec(prelude, names)

    def test() -> None:
        program = remote_objects.RemoteProgram(PROGRAM_FD, PROGRAM_MODULE)
        task = _receive_task(key)
        _answer(key, task, harness.run(PROGRAM_MODULE, task, names, program, program.share_classes))

    return _run_guarded(test)


def _receive_task(key: str) -> dict[str, Any]:
    """Report that the program has run, and return what to do with it."""
    _report({"ran": key})
    task: dict[str, Any] = decode_json(receive_message(REPORT_FD).decode())
    return task


def _answer(key: str, task: dict[str, Any], result: Any) -> None:
    _report({"key": key, "nonce": task["nonce"], "value": encode_json(result)})


def _execute(source: str, names: dict[str, Any]) -> None:
    _remember(source)
    exec(compile(source, FILE_NAME, "exec", dont_inherit=True), names)


def _execute_to_its_end(source: str, names: dict[str, Any]) -> None:
    try:
        _execute(source, names)
    except SystemExit as ending:
        raise RuntimeError("the program ended itself before it could be tested") from ending


def _call(names: dict[str, Any], function: str, arguments: list[Any]) -> Any:
    """Call a function of the code; where the code has a class `Solution`, a method of that."""
    owner = names.get("Solution")
    found = None
    if isinstance(owner, type):
        found = getattr(owner(), function, None)
    if found is None:
        found = names.get(function)
    if not callable(found):
        raise NameError(f"the code defines no function {function!r}")
    return found(*arguments)


def _run_cells() -> None:
    """Run one piece of code after another with the same variables, until no more come."""
    names = _make_module("__main__")
    own_pid = os.getpid()
    while True:
        try:
            source = receive_message(REPORT_FD).decode()
        except EOFError:
            return
        value: list[str] = []
        status = _run_guarded(lambda source=source, value=value: _run_cell(source, names, value))  # type: ignore[misc]
        for stream in (sys.stdout, sys.stderr):
            _run_guarded(stream.flush)
        if _getpid() != own_pid:
            _exit(status)  # a fork that the cell made
        _report({"status": status, "value": value[0] if value else None})


def _run_cell(source: str, names: dict[str, Any], value: list[str]) -> None:
    """Run a cell; if its last statement is an expression, append its `repr` to `value`, unless it is None."""
    _remember(source)
    tree = ast.parse(source, FILE_NAME)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = tree.body.pop()
    exec(compile(tree, FILE_NAME, "exec", dont_inherit=True), names)
    if isinstance(last, ast.Expr):
        result = eval(compile(ast.Expression(last.value), FILE_NAME, "eval", dont_inherit=True), names)
        if result is not None:
            value.append(repr(result)[:MAX_VALUE_CHARS])


def _run_guarded(action: Callable[[], None], *, reports: bool = True, reports_exit: bool = False) -> int:
    """Run code and return an exit status; print what it raises as Python would."""
    try:
        action()
    except SystemExit as ending:
        if reports_exit:
            _report({"exited": True})
        return _read_exit_status(ending)
    except BaseException as error:
        for_memory = isinstance(error, MemoryError)
        if for_memory and reports:
            _report({"memory": True})
        _print_error(error)
        return MEMORY_STATUS if for_memory and not reports else 1
    return 0


def _read_exit_status(ending: SystemExit) -> int:
    if ending.code is None:
        return 0
    if isinstance(ending.code, int):
        return ending.code & 0xFF
    write_all(2, f"{ending.code}\n".encode(errors="backslashreplace"))
    return 1


def _print_error(error: BaseException) -> None:
    try:
        shown = "".join(traceback.format_exception(type(error), error, _skip_own_frames(error.__traceback__)))
    except Exception:  # the text of the error cannot be made, or there is no memory for it
        shown = f"{type(error).__name__}\n"
    with contextlib.suppress(Exception):  # the code may have closed or replaced it
        sys.stderr.flush()
    write_all(2, shown.encode(errors="backslashreplace"))


def _skip_own_frames(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _finish(status: int) -> int:
    """Wait for the code's threads and run its exit handlers, as an interpreter would."""
    status = _run_guarded(threading._shutdown) or status  # type: ignore[attr-defined]
    status = _run_guarded(atexit._run_exitfuncs) or status
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is not None and not stream.closed:
            status = _run_guarded(stream.flush) or status
    return status


def _make_module(name: str) -> dict[str, Any]:
    """Return the namespace of a new module for the code, and hide this package from it."""
    module = ModuleType(name)
    module.__dict__.update(__file__=FILE_NAME, __builtins__=builtins)
    for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == "nemo_gym"]:
        del sys.modules[loaded]
    sys.modules["__main__"] = ModuleType("__main__")
    sys.modules[name] = module
    sys.argv[:] = [FILE_NAME]
    sys.path.insert(0, os.getcwd())
    return module.__dict__


def _open_streams() -> None:
    stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), encoding="utf-8", errors="replace")
    stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8")
    stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w", closefd=False)),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )
    for name, stream in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _remember(source: str) -> None:
    """Let tracebacks show the lines of the code."""
    linecache.cache[FILE_NAME] = (len(source), None, source.splitlines(keepends=True), FILE_NAME)


def _report(report: dict[str, Any]) -> None:
    write_all(REPORT_FD, encode_json(report).encode() + b"\n")
