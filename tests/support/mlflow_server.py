# SPDX-License-Identifier: Apache-2.0
"""A real MLflow tracking server for tests: sqlite, local artifacts, one process, started once for a test process.

`mlflow server` itself starts two interpreters that both load all of MLflow; this runs the application it would run,
with the settings it would hand on.
"""

import atexit
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path

import psutil

from tests.support.small_servers import free_port

_IDLE_S = 120
"""How long a server may neither answer nor compute before it counts as hung."""


@cache
def mlflow_server() -> str:
    """The URL of the server of this test process; it ends with the process, whatever ends that."""
    # In memory where that is possible: making the tables of a database waits for the disk many times.
    folder = Path(tempfile.mkdtemp(prefix="mlflow-", dir=next(filter(os.path.isdir, ["/dev/shm"]), None)))
    port = free_port()
    settings = {
        "_MLFLOW_SERVER_FILE_STORE": f"sqlite:///{folder / 'registry.db'}",
        "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
        "_MLFLOW_SERVER_ARTIFACT_DESTINATION": str(folder / "artifacts"),
        "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "mlflow.server.fastapi_app:app", "--port", str(port)],
            env={**os.environ, **settings, "PYTHONDONTWRITEBYTECODE": ""},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            preexec_fn=_end_with_parent,
        )
    atexit.register(_stop, server, folder)
    url = f"http://127.0.0.1:{port}"
    _wait_until_it_answers(url, server, folder / "log")
    return url


def _wait_until_it_answers(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    computed_s = -1.0
    deadline = 0.0
    while server.poll() is None:
        try:
            # Not /health: the first look into the database makes its tables, which takes longer than the start.
            urllib.request.urlopen(f"{url}/api/2.0/mlflow/registered-models/search", timeout=_IDLE_S).close()
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
        with contextlib.suppress(psutil.NoSuchProcess):
            used = psutil.Process(server.pid).cpu_times()
            if used.user + used.system > computed_s:
                computed_s = used.user + used.system
                deadline = time.monotonic() + _IDLE_S
        if time.monotonic() > deadline:
            break
    raise AssertionError(f"the MLflow server did not start (exit code {server.poll()}):\n{log.read_text()}")


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _stop(server: "subprocess.Popen[bytes]", folder: Path) -> None:
    server.kill()
    server.wait()
    shutil.rmtree(folder, ignore_errors=True)
