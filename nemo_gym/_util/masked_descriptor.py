# SPDX-License-Identifier: Apache-2.0
"""Mask what is written to file descriptor 2 past Python: by a C library, or by a child process that inherits it.

A process beside this one reads what comes there, and passes it on without the known secrets. A thread would not do:
code that writes while it holds the interpreter would wait for it for ever, and what was not read would be lost if this
process ends at once. Python's own stderr goes on to the real one, which may be a terminal.
"""

import atexit
import contextlib
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterable
from typing import TextIO

from nemo_gym._util.known_secrets import KNOWN_SECRETS, MASK, MaskedStream

_STDERR_FD = 2
_EXIT_PATIENCE_S = 2.0
# It gets the secrets over a pipe of its own, base64 by line, always before what may hold them.
_FILTER = """
import base64, os, select, sys
control, mask = int(sys.argv[1]), sys.argv[2].encode()
sources, told, pending, forms = [0, control], b"", b"", []
def write(data):
    for form in forms:
        data = data.replace(form, mask)
    while data:
        data = data[os.write(1, data):]
def listen():
    global told, forms
    data = os.read(control, 65536)
    if not data:
        sources.remove(control)
    *lines, told = (told + data).split(b"\\n")
    forms = sorted({*forms, *map(base64.b64decode, lines)}, key=len, reverse=True)
while True:
    ready = select.select(sources, [], [], 0.2 if pending else None)[0]
    while control in sources and select.select([control], [], [], 0)[0]:
        listen()
    if 0 in ready:
        data = os.read(0, 65536)
        pending += data
        cut = pending.rfind(b"\\n") + 1 if data else len(pending)
        write(pending[:cut])
        pending = pending[cut:]
        if not data:
            break
    elif not ready:
        write(pending)
        pending = b""
"""


class _Masking:
    """The process that filters, and how to tell it of secrets."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._real_fd = os.dup(_STDERR_FD)
        data_out, data_in = os.pipe()
        control_out, self._control = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _FILTER, str(control_out), MASK],
            stdin=data_out,
            stdout=self._real_fd,
            stderr=subprocess.DEVNULL,
            pass_fds=[control_out],
            start_new_session=True,  # Ctrl-C is for us
        )
        os.close(data_out)
        os.close(control_out)
        KNOWN_SECRETS.call_on_change(self._tell)
        os.dup2(data_in, _STDERR_FD)
        os.close(data_in)

    def open_real(self, encoding: str) -> TextIO:
        """Return a stream to the real stderr."""
        return os.fdopen(os.dup(self._real_fd), "w", buffering=1, encoding=encoding, errors="backslashreplace")

    def end(self) -> None:
        """Write to the real stderr again, and wait until all that was written before has arrived."""
        if os.getpid() != self._owner:
            return
        os.dup2(self._real_fd, _STDERR_FD)
        KNOWN_SECRETS.call_on_change(None)
        os.close(self._control)
        # Children that are still there keep it waiting; it ends with the last of them.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_PATIENCE_S)

    def _tell(self, forms: Iterable[bytes]) -> None:
        with contextlib.suppress(OSError):  # it has ended, or this is a fork
            for form in forms:
                os.write(self._control, b64encode(form) + b"\n")


_masking: _Masking | None = None


def mask_descriptor() -> None:
    """Begin to mask descriptor 2, in a process whose `sys.stderr` is masked; do nothing in any other, or if it is."""
    global _masking
    stderr = sys.stderr
    if _masking is not None or not isinstance(stderr, MaskedStream):
        return
    try:
        os.fstat(_STDERR_FD)
    except OSError:  # started without one, as in `2>&-`
        return
    stderr.flush()
    _masking = _Masking()
    real = _masking.open_real(stderr.encoding or "utf-8")
    stderr.redirect(real)
    sys.__stderr__ = real  # type: ignore[misc, assignment]
    atexit.register(_masking.end)
