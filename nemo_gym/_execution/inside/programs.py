# SPDX-License-Identifier: Apache-2.0
"""What a child does with the code it was given: run it as a program, call a function of it, or run it cell by cell.

The code shares this process, so nothing here can be trusted once it runs: all a child can do is to report, and the
report is about nobody but itself.
"""

import ast
import atexit
import builtins
import contextlib
import io
import json
import linecache
import os
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any

REPORT_FD = 3
FILE_NAME = "main.py"
MAX_VALUE_CHARS = 20_000
LENGTH = struct.Struct(">Q")

# Kept here because the code may put others in their place.
_exit, _write, _read, _getpid = os._exit, os.write, os.read, os.getpid


def become_program(request: dict[str, Any]) -> None:
    """Do what `request` asks for, and end the process."""
    status = 1
    try:
        _new_streams()
        if request["op"] == "session":
            _run_cells()
            status = 0
        else:
            status = _run(request)
    except BaseException as error:
        _print_error(error)
    finally:
        _exit(status)


def _run(request: dict[str, Any]) -> int:
    names = _new_main()
    exec(request["prelude"], names)
    given = dict(names)
    status = _guarded(lambda: _execute(request["source"], names))
    if status == 0 and request["op"] == "call":
        own = {name: value for name, value in names.items() if value is not given.get(name)}
        status = _guarded(lambda: _report_result(_call(own, request["function"], request["arguments"])))
    return _finish(status)


def _execute(source: str, names: dict[str, Any]) -> None:
    _remember(source)
    exec(compile(source, FILE_NAME, "exec", dont_inherit=True), names)


def _call(names: dict[str, Any], function: str, arguments: list[Any]) -> Any:
    """The result of a function of the code; where the code has a class `Solution`, of a method of that."""
    owner = names.get("Solution")
    found = getattr(owner(), function, None) if isinstance(owner, type) else None
    found = found if found is not None else names.get(function)
    if not callable(found):
        raise NameError(f"the code defines no function {function!r}")
    return found(*arguments)


def _run_cells() -> None:
    """Run one piece of code after the other in the same names, until nobody sends any more."""
    names = _new_main()
    own_pid = os.getpid()
    while True:
        (size,) = LENGTH.unpack(_exactly(LENGTH.size))
        source = _exactly(size).decode()
        value: list[str] = []
        status = _guarded(lambda source=source, value=value: _run_cell(source, names, value))  # type: ignore[misc]
        for stream in (sys.stdout, sys.stderr):
            _guarded(stream.flush)
        if _getpid() != own_pid:
            _exit(status)  # a fork that the cell made, and that came to its end
        _report({"status": status, "value": value[0] if value else None})


def _run_cell(source: str, names: dict[str, Any], value: list[str]) -> None:
    """Run a cell; if its last statement is an expression, `value` gets what that gave, unless None."""
    _remember(source)
    tree = ast.parse(source, FILE_NAME)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, FILE_NAME, "exec", dont_inherit=True), names)
    if isinstance(last, ast.Expr):
        result = eval(compile(ast.Expression(last.value), FILE_NAME, "eval", dont_inherit=True), names)
        if result is not None:
            value.append(repr(result)[:MAX_VALUE_CHARS])


def _guarded(action: Callable[[], None]) -> int:
    """Run code; whatever it raises is printed as Python would, and becomes an exit status."""
    try:
        action()
    except SystemExit as ending:
        return _status_of(ending)
    except BaseException as error:
        if isinstance(error, MemoryError):
            _report({"memory": True})
        _print_error(error)
        return 1
    return 0


def _status_of(ending: SystemExit) -> int:
    if ending.code is None:
        return 0
    if isinstance(ending.code, int):
        return ending.code & 0xFF
    _write(2, f"{ending.code}\n".encode(errors="backslashreplace"))
    return 1


def _print_error(error: BaseException) -> None:
    try:
        shown = "".join(traceback.format_exception(type(error), error, _frames_of_the_code(error.__traceback__)))
    except Exception:  # an error whose text cannot be made, or no memory left to make it in
        shown = f"{type(error).__name__}\n"
    with contextlib.suppress(Exception):  # the code may have closed it, or put anything in its place
        sys.stderr.flush()
    _write(2, shown.encode(errors="backslashreplace"))


def _frames_of_the_code(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _finish(status: int) -> int:
    """Wait for the code's threads and run what it wanted at its end, as an interpreter would."""
    status = _guarded(threading._shutdown) or status  # type: ignore[attr-defined]
    status = _guarded(atexit._run_exitfuncs) or status
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is not None and not stream.closed:
            status = _guarded(stream.flush) or status
    return status


def _new_main() -> dict[str, Any]:
    main = ModuleType("__main__")
    main.__dict__.update(__file__=FILE_NAME, __builtins__=builtins)
    for name in [name for name in sys.modules if name.partition(".")[0] == "nemo_gym"]:
        del sys.modules[name]
    sys.modules["__main__"] = main
    sys.argv[:] = [FILE_NAME]
    sys.path.insert(0, os.getcwd())
    return main.__dict__


def _new_streams() -> None:
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
    data = json.dumps(report).encode() + b"\n"
    while data:
        data = data[_write(REPORT_FD, data) :]


def _report_result(result: Any) -> None:
    _report({"value": json.dumps(result)})


def _exactly(size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = _read(REPORT_FD, size - len(data))
        if not piece:
            _exit(0)
        data += piece
    return data
