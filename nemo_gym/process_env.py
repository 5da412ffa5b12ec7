# SPDX-License-Identifier: Apache-2.0
"""What a server process learns from its environment: its instance name, its workers, the token of its run."""

import os
from pathlib import Path

from nemo_gym._serving import run_token
from nemo_gym.config_types import BaseServerConfig

INSTANCE_NAME_ENV = "NEMO_GYM_CONFIG_PATH"
_RUN_TOKEN_ENV = "NEMO_GYM_RUN_TOKEN"
_RUN_TOKEN_DIR_ENV = "NEMO_GYM_RUN_TOKEN_DIR"
IS_WORKER_ENV = "IS_NEMO_GYM_FASTAPI_WORKER"
ENTRYPOINT_ENV = "IS_NEMO_GYM_FASTAPI_ENTRYPOINT"
NUM_WORKERS_ENV = "NEMO_GYM_FASTAPI_NUM_WORKERS"


def run_token_path(where: BaseServerConfig) -> Path:
    """The file that holds the run token of the head server at `where`."""
    folder = os.environ.get(_RUN_TOKEN_DIR_ENV)
    base = Path(folder) if folder else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nemo-gym"
    return run_token.token_path(base, where.host, where.port)


def run_token_header(where: BaseServerConfig) -> dict[str, str]:
    """The header that opens the head server's secrets, if this user has the token."""
    token = os.environ.get(_RUN_TOKEN_ENV) or run_token.read_token(run_token_path(where))
    return {run_token.HEADER: token} if token else {}


def is_nemo_gym_fastapi_worker() -> bool:
    """Whether this process is one of several workers of a server."""
    return os.environ.get(IS_WORKER_ENV) == "1"


def is_nemo_gym_fastapi_entrypoint(file: str) -> bool:
    """Whether `file` is the module that this worker process was started to serve."""
    entrypoint = os.environ.get(ENTRYPOINT_ENV)
    return is_nemo_gym_fastapi_worker() and entrypoint is not None and Path(entrypoint) == Path(file).absolute()


def get_nemo_gym_fastapi_num_workers() -> int:
    """How many workers share the work of this server."""
    return int(os.environ.get(NUM_WORKERS_ENV, "1"))
