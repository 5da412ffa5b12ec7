# SPDX-License-Identifier: Apache-2.0
"""What a server process learns from its environment: its instance name, its workers, the token of its run."""

import hmac
import os
import secrets
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from nemo_gym._servers.http import sockets as binding
from nemo_gym._servers.processes import entrypoint, private_run_files as run_files, server_workers as workers
from nemo_gym._util.secret_names import mask_arguments
from nemo_gym.config_types import BaseServerConfig

INSTANCE_NAME_ENV = "NEMO_GYM_CONFIG_PATH"
CONFIG_FILE_ENV = "NEMO_GYM_CONFIG_FILE"
RUN_TOKEN_ENV = "NEMO_GYM_RUN_TOKEN"
_RUN_TOKEN_DIR_ENV = "NEMO_GYM_RUN_TOKEN_DIR"
_RUN_TOKEN_FILE_ENV = "NEMO_GYM_RUN_TOKEN_FILE"
RUN_SECRET_ENV = "NEMO_GYM_RUN_SECRET"
IS_WORKER_ENV = "IS_NEMO_GYM_FASTAPI_WORKER"
ENTRYPOINT_ENV = "IS_NEMO_GYM_FASTAPI_ENTRYPOINT"
NUM_WORKERS_ENV = "NEMO_GYM_FASTAPI_NUM_WORKERS"

starting = threading.Event()
"""Set while servers of this process start; the ports of others that start beside them may refuse calls till then."""
_serving = threading.Lock()


def find_machine_id() -> str:
    """Return what processes have in common that reach each other by loopback: their machine and its network."""
    try:
        network = os.readlink("/proc/self/ns/net")
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {network}"
    except OSError:  # not Linux, or a closed /proc
        return socket.gethostname()


def run_files_folder() -> Path:
    """Return where files of running servers are kept that only their user may read."""
    folder = os.environ.get(_RUN_TOKEN_DIR_ENV)
    if folder:
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nemo-gym"


def run_token_path(where: BaseServerConfig) -> Path:
    """Return the file that holds the run token of the head server at `where`."""
    # Machines that share a home folder have a loopback address each.
    is_loopback = where.host == "localhost" or where.host.startswith(("127.", "::1"))
    host = f"{where.host}@{os.uname().nodename}" if is_loopback else where.host
    return run_files.token_path(run_files_folder(), host, where.port)


def run_token_header(where: BaseServerConfig) -> dict[str, str]:
    """Return the header that opens the head server's secrets, if this user has the token."""
    token = os.environ.get(RUN_TOKEN_ENV) or run_files.read_token(run_token_path(where))
    return {run_files.TOKEN_HEADER: token} if token else {}


@contextmanager
def share_run_token(where: BaseServerConfig) -> Iterator[None]:
    """Let this process and those that it starts derive their secrets from the token of the head server at `where`."""
    before = os.environ.get(_RUN_TOKEN_FILE_ENV)
    os.environ[_RUN_TOKEN_FILE_ENV] = str(run_token_path(where))
    try:
        yield
    finally:
        os.environ.pop(_RUN_TOKEN_FILE_ENV, None)
        if before is not None:
            os.environ[_RUN_TOKEN_FILE_ENV] = before


def derive_run_secret(purpose: str) -> str | None:
    """Return what all processes of this run, and nobody else, can derive for `purpose`; None outside of a run."""
    shared = os.environ.get(RUN_SECRET_ENV) or _read_token_file()
    if shared:
        return hmac.digest(shared.encode(), purpose.encode(), "sha256").hex()
    return None


def read_run_token() -> str | None:
    """Return the token of the run that this process belongs to; None outside of a run."""
    # The file comes first: a user's variable may be that of another run.
    return _read_token_file() or os.environ.get(RUN_TOKEN_ENV)


def export_run_token() -> dict[str, str]:
    """Return the variables that tell the token of this run to a process that cannot read the file which holds it."""
    token = _read_token_file()
    if token:
        return {RUN_TOKEN_ENV: token, RUN_SECRET_ENV: token}
    return {}


def _read_token_file() -> str | None:
    path = os.environ.get(_RUN_TOKEN_FILE_ENV)
    if path:
        return run_files.read_token(Path(path))
    return None


@lru_cache(maxsize=1)
def own_secret() -> str:
    """Return a random secret of this process."""
    return secrets.token_urlsafe(32)


def is_nemo_gym_fastapi_worker() -> bool:
    """Tell whether this process is one of several workers of a server."""
    return os.environ.get(IS_WORKER_ENV) == "1"


def is_nemo_gym_fastapi_entrypoint(file: str) -> bool:
    """Tell whether `file` is the module that this worker process was started to serve."""
    entrypoint = os.environ.get(ENTRYPOINT_ENV)
    return is_nemo_gym_fastapi_worker() and entrypoint is not None and Path(entrypoint) == Path(file).absolute()


def get_nemo_gym_fastapi_num_workers() -> int:
    """Return how many workers share the work of this server."""
    return int(os.environ.get(NUM_WORKERS_ENV, "1"))


def listener(where: BaseServerConfig, name: str) -> socket.socket:
    """Return the socket that this process serves on: its parent's gift, else bound here."""
    given = entrypoint.take_fd(os.environ, entrypoint.LISTEN_FD)
    if given is not None:
        return socket.socket(fileno=given)
    return binding.bind(where.host, where.port, name)


def is_supervised() -> bool:
    """Tell whether a parent process waits for this server to be ready, and takes what it prints."""
    return entrypoint.READY_FD in os.environ


def say_ready() -> None:
    """Note that this server listens, and tell the parent process if it waits for that."""
    starting.clear()
    given = entrypoint.take_fd(os.environ, entrypoint.READY_FD)
    if given is not None:
        entrypoint.say_ready(given)


@lru_cache(maxsize=1)
def this_worker() -> workers.ServerWorker | None:
    """Return which of the several workers of a server this process is; None in every other process."""
    return workers.this_worker(os.environ)


def run_workers(where: BaseServerConfig, name: str, config_yaml: str) -> int:
    """Run this process's own command once more for each worker of the server `name`; the code to exit with.

    A key on that command is not passed on: workers have it from `config_yaml`, in a file that only their user can read.
    """
    count = where.num_workers or 1
    sock = listener(where, name)
    # A worker runs its entrypoint as a script. Nothing that imports it there by its name is to serve once more, so no
    # file is the entrypoint in the sense of `is_nemo_gym_fastapi_entrypoint`.
    inherited = {key: value for key, value in os.environ.items() if key != ENTRYPOINT_ENV}
    if derive_run_secret("") is None:  # started by hand: its workers are all of the run that there is
        inherited[RUN_SECRET_ENV] = own_secret()
    with run_files.private_file(run_files_folder(), config_yaml) as path:
        return workers.run(
            [sys.executable, *mask_arguments(sys.orig_argv[1:])],
            sock,
            count,
            server_name=name,
            environment={CONFIG_FILE_ENV: str(path), **inherited, IS_WORKER_ENV: "1", NUM_WORKERS_ENV: str(count)},
            on_ready=say_ready,
        )


def may_serve() -> bool:
    """Tell whether this call may begin to serve; if not, the app is wanted.

    A worker serves once, and a process manager that imports apps from entrypoint modules serves them itself.
    """
    if this_worker() is not None:
        return _serving.acquire(blocking=False)
    return not (is_nemo_gym_fastapi_worker() and ENTRYPOINT_ENV in os.environ)
