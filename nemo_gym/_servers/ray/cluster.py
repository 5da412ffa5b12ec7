# SPDX-License-Identifier: Apache-2.0
"""Ray, only where something asks for it: check, join or start the one cluster of a run.

The process that launches the servers settles which cluster that is and hands its address down as `RAY_ADDRESS`, so
that every `ray.init` of a server, also the one that Ray does by itself at a first `.remote()`, joins it.
"""

import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from omegaconf import DictConfig, open_dict

from nemo_gym import NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, component_search_roots
from nemo_gym._servers.ray.machine_permissions import find_doubtful_permissions, find_missing_permissions
from nemo_gym.errors import GymError

LOG = logging.getLogger(__name__)
RAY_HEAD_NODE_ADDRESS_KEY_NAME = "ray_head_node_address"
RAY_ADDRESS_ENV = "RAY_ADDRESS"

_LOCAL_CLUSTER_ENV = "NEMO_GYM_LOCAL_RAY_CLUSTER"
"""Set if this run has started its cluster, which is this machine alone: the prefix of the Python that started it."""
_AUTO = "auto"
_STARTS = 2
"""How often a local cluster is started if it fails."""
_SLOW_STARTS = 8
"""How often it is started if its processes run but are not ready after the half minute that Ray gives them."""
_CONNECT_TIMEOUT_S = 5.0
# A call that only the right kind of server knows, whatever it answers.
_CLUSTER_CALL = "/ray.rpc.NodeInfoGcsService/CheckAlive"
_CLIENT_CALL = "/ray.rpc.RayletDriver/ClusterInfo"
# Where Ray looks for the token of a cluster that asks for one; Ray 2.60 makes one for each user who starts a cluster.
_TOKEN_ENVS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
_TOKEN_FILE = "~/.ray/auth_token"

_started_here = False


class RayUnavailable(GymError):
    """Ray is not installed, or a cluster cannot be reached, joined or started."""


# --- the cluster of this process --------------------------------------------------------------------------------------


def join_or_start_cluster(global_config_dict: DictConfig) -> None:
    """Join `ray_head_node_address` or start a local cluster, and store the address of the cluster under that key."""
    global _started_here
    ray = require_ray()
    address = find_cluster_address(global_config_dict)
    if not ray.is_initialized():
        if not address and (missing := find_missing_permissions()):
            # Ray's own processes die of that in ways that say little.
            raise RayUnavailable(_explain_failure(None, f"this process has no permission {'; nor '.join(missing)}"))
        if address:
            LOG.info("joining the Ray cluster at %s", address)
        else:
            LOG.info("starting a local Ray cluster")
        for attempt in range(1, _SLOW_STARTS + 1):
            try:
                _init(ray, address)
                break
            except Exception as error:  # Ray raises what it likes, also a bare Exception
                is_slow = "timed out" in str(error).lower()
                if address or attempt >= (_SLOW_STARTS if is_slow else _STARTS):
                    raise RayUnavailable(_explain_failure(address, error)) from error
                LOG.warning("a local Ray cluster did not start and is started again: %s", error)
                ray.shutdown()
        _started_here = not address
    if not address or address == _AUTO:
        with open_dict(global_config_dict):
            global_config_dict[RAY_HEAD_NODE_ADDRESS_KEY_NAME] = ray.get_runtime_context().gcs_address


def _init(ray: Any, address: str | None) -> None:
    # Said to be local, for else Ray waits for a minute for one that has crashed on this machine. The dashboard takes
    # longer to start than all the rest.
    if address:
        how: dict[str, Any] = {"address": address}
    else:
        how = {"address": "local", "include_dashboard": False}
    if not address:
        how["runtime_env"] = _same_servers()
    elif os.environ.get(_LOCAL_CLUSTER_ENV, sys.prefix) != sys.prefix:
        # A server with its own environment: its remote functions may need what that has.
        how["runtime_env"] = {**_same_servers(), "py_executable": sys.executable}
    ray.init(**how, ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
    # Ray would print on standard output, which is for results, what its nodes say about themselves.
    worker = sys.modules.get("ray._private.worker")
    if hasattr(worker, "_worker_logs_enabled"):
        worker._worker_logs_enabled = False  # type: ignore[union-attr]


def _same_servers() -> dict[str, Any]:
    """Let the workers of a cluster on this machine import the same server folders as this process."""
    roots = os.pathsep.join(map(str, component_search_roots()))
    variables = {NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME: roots}
    return {"env_vars": variables, "worker_process_setup_hook": "nemo_gym._make_servers_importable"}


def find_cluster_address(global_config_dict: DictConfig) -> str | None:
    """Return the cluster to join: the config's, else the one that Ray itself would take from the environment."""
    return global_config_dict.get(RAY_HEAD_NODE_ADDRESS_KEY_NAME) or os.environ.get(RAY_ADDRESS_ENV) or None


def stop_own_cluster() -> None:
    """Shut down the cluster that this process started."""
    global _started_here
    if _started_here:
        require_ray().shutdown()
        _started_here = False


def join_named_cluster_if_used(global_config_dict: DictConfig) -> None:
    """Join the cluster of the run if this process has imported Ray, so that a fault shows before it serves."""
    if "ray" in sys.modules and find_cluster_address(global_config_dict):
        join_or_start_cluster(global_config_dict)


def send_code_by_value(module: ModuleType) -> None:
    """Let remote functions of `module` run on nodes that cannot import it, as those of a script do."""
    if "ray" in sys.modules:
        import ray.cloudpickle

        pickler: Any = ray.cloudpickle  # untyped
        pickler.register_pickle_by_value(module)


# --- the cluster of a run ---------------------------------------------------------------------------------------------


@contextmanager
def run_cluster(
    global_config_dict: DictConfig, users: Sequence[str], *, used_here: bool, notice: Callable[[str], None]
) -> Iterator[None]:
    """Have the cluster of a run named in the config and in `RAY_ADDRESS` while the context lasts.

    `users` are the servers that use Ray, `used_here` says that some of them are in this process. Without a named
    cluster and without such servers, nothing happens; without Ray here, joining is left to those that have it.
    """
    global _started_here
    address = find_cluster_address(global_config_dict)
    is_needed_here = used_here or (users and not address)
    joined_here = False
    if address == _AUTO or (is_needed_here and importlib.util.find_spec("ray") is not None):
        joined_here = not require_ray().is_initialized()
        if joined_here:
            what = "starting Ray on this machine"
            if address:
                what = f"joining the Ray cluster at {address}"
            notice(f"{what} for {', '.join(users)}" if users else what)
        join_or_start_cluster(global_config_dict)
        address = global_config_dict.get(RAY_HEAD_NODE_ADDRESS_KEY_NAME) or address
    handed_down = {RAY_ADDRESS_ENV: str(address)} if address else {}
    if joined_here and _started_here:
        handed_down[_LOCAL_CLUSTER_ENV] = sys.prefix
    before = {name: os.environ.get(name) for name in handed_down}
    os.environ |= handed_down
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if joined_here:
            require_ray().shutdown()
            _started_here = False


def require_reachable_cluster(global_config_dict: DictConfig) -> None:
    """Raise within seconds unless a Ray cluster answers at the address that the config names, if it names one.

    Ray itself would try for a minute. What is not an address but a word to Ray, such as `auto`, is left to Ray.
    """
    address = find_cluster_address(global_config_dict)
    if not address or address == _AUTO:
        return
    scheme, _, place = str(address).rpartition("://")
    if scheme not in ("", "ray"):
        return
    try:
        where = urlsplit(f"//{place}")
        host = where.hostname
        port = where.port
    except ValueError:
        host = None
        port = None
    if not host or not port:
        raise RayUnavailable(
            f"{address!r} (`{RAY_HEAD_NODE_ADDRESS_KEY_NAME}`) is not the address of a Ray cluster.\n"
            "hint: give host:port of the head node, ray://host:port of its client server, or `auto`"
        )
    try:
        socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise RayUnavailable(_explain_failure(address, error)) from error
    cause = _find_what_is_wrong(f"{host}:{port}", is_client=scheme == "ray")
    if cause is not None:
        raise RayUnavailable(_explain_failure(address, cause))


def _find_what_is_wrong(place: str, *, is_client: bool) -> str | None:
    """Return why the server at `place` is not the kind of Ray server that its address says, if that can be told."""
    try:
        import grpc  # comes with Ray
    except ImportError:
        return None
    with grpc.insecure_channel(place) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_CONNECT_TIMEOUT_S)
            channel.unary_unary(_CLIENT_CALL if is_client else _CLUSTER_CALL)(b"", timeout=_CONNECT_TIMEOUT_S)
        except grpc.FutureTimeoutError:
            return "something else than Ray answers there"
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                # Both ports speak the same protocol and are easily confused.
                return f"the port is not that of Ray's {'client server' if is_client else 'head node'}"
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                has_token = any(map(os.environ.get, _TOKEN_ENVS)) or os.path.exists(os.path.expanduser(_TOKEN_FILE))
                if not has_token:
                    return f"it asks for a token, and there is none here ({', '.join(_TOKEN_ENVS)} or {_TOKEN_FILE})"
    return None


def _explain_failure(address: str | None, cause: object) -> str:
    if not address:
        doubtful = find_doubtful_permissions()
        known = ""
        if doubtful:
            known = f"it may lack permission {'; and '.join(doubtful)}\n"
        return (
            f"a Ray cluster could not be started on this machine: {cause}\n{known}"
            "hint: give the sandbox what is missing, try again if the machine was busy, or name a running cluster with "
            f"`+{RAY_HEAD_NODE_ADDRESS_KEY_NAME}=<host:port>`; only Ray needs this, servers that do without it run here"
        )
    return (
        f"the Ray cluster at {address!r} (`{RAY_HEAD_NODE_ADDRESS_KEY_NAME}`) cannot be joined: {cause}\n"
        "hint: see on its head node with `ray status` that it runs, and give host:port of the head node (6379 unless "
        "chosen), ray://host:port of its client server (10001 unless chosen), or `auto`; without the key, a cluster "
        "is started here where a server needs one"
    )


def require_ray() -> Any:
    """Return the module `ray`; the error says how to get it."""
    try:
        import ray
    except ImportError as error:
        raise RayUnavailable(
            f"Ray is needed here and is not installed ({error}).\nhint: pip install 'nemo-gym[ray]'"
        ) from error
    return ray
