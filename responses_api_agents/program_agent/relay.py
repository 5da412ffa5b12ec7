# SPDX-License-Identifier: Apache-2.0
"""Inside a sandbox: forward connections from a loopback port to a socket file while a program runs. This is a script.

    python relay.py PORT SOCKET COMMAND...

It ends with the program and returns its exit code. It imports little of the standard library, so that it starts fast
and stays small.
"""

import contextlib
import os
import socket
import sys
import threading

_CHUNK_BYTES = 65536


def main(port: int, path: str, command: list[str]) -> int:
    """Listen, run the command, and return its exit code."""
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    threading.Thread(target=_accept, args=(listener, path), daemon=True).start()
    try:
        pid = os.posix_spawnp(command[0], command, os.environ)
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]!r}: {error}\n")
        return 127
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _accept(listener: socket.socket, path: str) -> None:
    while True:
        inner, _ = listener.accept()
        outer = socket.socket(socket.AF_UNIX)
        try:
            outer.connect(path)
        except OSError:
            inner.close()
            continue
        for source, target in ((inner, outer), (outer, inner)):
            threading.Thread(target=_forward, args=(source, target), daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    os._exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
