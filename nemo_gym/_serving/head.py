# SPDX-License-Identifier: Apache-2.0
"""The head server's app: it knows the config and the addresses of a run. Secrets are for holders of the run token."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel

from nemo_gym._inprocess.route import GymRoute
from nemo_gym._serving.run_files import TOKEN_HEADER, same_token
from nemo_gym._transport.probe import ServerStatus


class ServerInstanceDisplayConfig(BaseModel):
    """One running server, as the head server lists it."""

    config_path: str | None = None
    dir_path: Path | None = None
    entrypoint: str | None = None
    host: str | None = None
    name: str | None = None
    node: str | None = None
    """The address of the node of a Ray cluster that a replica runs on."""
    pid: int | None = None
    port: int | None = None
    process_name: str | None = None
    replica: str | None = None
    """Which replica this is: its number, and which of its lives."""
    server_type: str | None = None
    start_time: float | None = None
    status: ServerStatus | None = None
    uptime_seconds: float | None = None
    url: str | None = None


def build_head_app(
    config_yaml: Callable[[bool], str], instances: Callable[[], list[dict[str, Any]]], token: str | None
) -> FastAPI:
    """Return an app that serves `config_yaml(with_secrets)` and `instances()`; without a token nobody sees secrets."""
    app = FastAPI()
    app.router.route_class = GymRoute

    async def liveness() -> dict[str, str]:
        return {"status": "ok"}

    async def global_config_dict_yaml(request: Request) -> str:
        return config_yaml(token is not None and same_token(request.headers.get(TOKEN_HEADER), token))

    async def server_instances() -> list[dict[str, Any]]:
        return instances()

    app.get("/")(liveness)
    app.get("/global_config_dict_yaml")(global_config_dict_yaml)
    app.get("/server_instances")(server_instances)
    return app
