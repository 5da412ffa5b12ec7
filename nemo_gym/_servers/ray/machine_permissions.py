# SPDX-License-Identifier: Apache-2.0
"""Try what Ray must be allowed to do on a machine to start a cluster; sandboxes and containers forbid some of it."""

import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

_SHARED_MEMORY = Path("/dev/shm")
_FEWEST_OPEN_FILES = 256
_PROCESS_TIMEOUT_S = 30.0


def find_missing_permissions() -> list[str]:
    """Return in words what this process may not do although Ray has to; an empty list if it may do everything."""
    return _try_all(
        {
            "to list the processes of this machine": _list_processes,
            "to start processes": _start_process,
            "to open TCP sockets on this machine": _open_tcp_socket,
            f"to write to {_temporary_folder()} (RAY_TMPDIR names another folder)": _write_temporary_file,
            f"to open unix sockets in {_temporary_folder()}": _open_unix_socket,
        }
    )


def find_doubtful_permissions() -> list[str]:
    """Return in words what else this process may not do; Ray can sometimes do without it."""
    return _try_all(
        {
            f"to write to {_SHARED_MEMORY}, for objects": _write_shared_memory,
            f"to open more than {_FEWEST_OPEN_FILES} files at once (`ulimit -n`)": _allow_open_files,
        }
    )


def _try_all(probes: dict[str, Callable[[], object]]) -> list[str]:
    missing = []
    for what, probe in probes.items():
        try:
            probe()
        except Exception as error:  # psutil has errors of its own, and each system more
            missing.append(f"{what} ({type(error).__name__}: {error})")
    return missing


def _list_processes() -> None:
    import psutil  # 20 ms, and only needed where Ray is

    psutil.pids()
    psutil.Process().children(recursive=True)


def _start_process() -> None:
    subprocess.run([sys.executable, "-S", "-c", ""], check=True, capture_output=True, timeout=_PROCESS_TIMEOUT_S)


def _open_tcp_socket() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        socket.create_connection(sock.getsockname(), timeout=5).close()


def _temporary_folder() -> Path:
    given = os.environ.get("RAY_TMPDIR")
    if given:
        return Path(given)
    return Path("/tmp/ray" if os.access("/tmp/ray", os.F_OK) else "/tmp")


def _write_temporary_file() -> None:
    with tempfile.NamedTemporaryFile(dir=_temporary_folder()) as file:
        file.write(b"nemo-gym")


def _open_unix_socket() -> None:
    with tempfile.TemporaryDirectory(dir=_temporary_folder()) as folder, socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"{folder}/s")


def _write_shared_memory() -> None:
    if _SHARED_MEMORY.exists():  # not every system has it
        with tempfile.NamedTemporaryFile(dir=_SHARED_MEMORY) as file:
            file.write(b"nemo-gym")


def _allow_open_files() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FEWEST_OPEN_FILES:
        raise PermissionError(f"the limit is {soft}")
