# SPDX-License-Identifier: Apache-2.0
"""How this process serves what it was started for, and how it finds the head server that serves elsewhere."""

import sys
import urllib.request
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

import orjson
from omegaconf import DictConfig, OmegaConf
from starlette.types import ASGIApp
from yaml import YAMLError

from nemo_gym._servers import process_environment as environment
from nemo_gym._servers.http import sockets as binding
from nemo_gym._servers.http.admission import AccessRules
from nemo_gym._servers.processes import server_workers as workers
from nemo_gym.config_types import BaseRunServerInstanceConfig, BaseServerConfig
from nemo_gym.errors import NoHeadServerError

if TYPE_CHECKING:
    import uvicorn


def serve_instance(app: ASGIApp, config: BaseRunServerInstanceConfig, access: AccessRules) -> None:
    """Serve `app` as the server that `config` describes, or as one of its workers, until a signal ends it."""
    worker = environment.this_worker()
    if worker is not None:
        workers.serve(worker, app, config.host, config.port, access, environment.starting.clear)
        return
    from nemo_gym._servers.http import listening  # loads uvicorn, which only who serves needs

    server = listening.uvicorn_server(app, config.host, config.port, access)
    server.on_ready = environment.say_ready
    with suppress(KeyboardInterrupt):  # uvicorn passes the signal on once it has shut down
        server.run(sockets=[environment.listener(config, config.name)])
    if not server.started:
        sys.exit(listening.STARTUP_FAILURE)


def serve_in_thread(
    app: ASGIApp, where: BaseServerConfig, access: AccessRules, name: str
) -> tuple["uvicorn.Server", Thread]:
    """Serve `app` in a daemon thread. Setting `should_exit` on the server stops it."""
    sock = binding.bind(where.host, where.port, name)
    from nemo_gym._servers.http import listening  # loads uvicorn, which only who serves needs

    server = listening.uvicorn_server(app, where.host, where.port, access, quiet_signals=True)
    return server, listening.serve_in_thread(server, sock, name=name.replace("_", "-"))


def fetch_head_config(where: BaseServerConfig) -> DictConfig:
    """Return the config of the run whose head server is at `where`."""
    url = f"http://{where.host}:{where.port}/global_config_dict_yaml"
    request = urllib.request.Request(url, headers=environment.run_token_header(where))
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            config = OmegaConf.create(orjson.loads(response.read()))
        if not isinstance(config, DictConfig):
            raise ValueError("not a mapping")
        return config
    except (OSError, ValueError, YAMLError) as error:
        reason: Any = "what answers there is something else"
        if isinstance(error, OSError):
            reason = getattr(error, "reason", error)
        raise NoHeadServerError(
            f"no head server answers at {where.host}:{where.port}: {reason}.\n"
            "hint: start the servers first (`gym env start` or `ng_run`), with the same `head_server` host and port"
        ) from error
