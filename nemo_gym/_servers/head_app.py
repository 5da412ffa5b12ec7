# SPDX-License-Identifier: Apache-2.0
"""The head server's app: it knows the config and the addresses of a run. Secrets are for holders of the run token."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from nemo_gym._servers.direct_calls.route import GymRoute
from nemo_gym._servers.http.guard import json_reply
from nemo_gym._servers.policy_versions.announcing import VERSION_PATH, Announcement, PolicyVersionRefused, RunVersion
from nemo_gym._servers.processes.private_run_files import TOKEN_HEADER, same_token
from nemo_gym._transport.probe import ServerStatus
from nemo_gym.errors import GymError

LONGEST_WAIT_S = 0.5
"""So long a caller may wait for another policy version in one request: a server that is stopped waits for it."""


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
    config_yaml: Callable[[bool], str],
    instances: Callable[[], list[dict[str, Any]]],
    token: str | None,
    versions: RunVersion | None = None,
) -> FastAPI:
    """Return an app that serves `config_yaml(with_secrets)` and `instances()`; without a token nobody sees secrets.

    `versions` is where policy versions are announced and asked for.
    """
    app = FastAPI()
    app.router.route_class = GymRoute

    async def liveness() -> dict[str, str]:
        """Say that the server runs."""
        return {"status": "ok"}

    async def global_config_dict_yaml(request: Request) -> str:
        """Return the config of the run as YAML; its secrets are masked unless the request carries the run token."""
        return config_yaml(token is not None and same_token(request.headers.get(TOKEN_HEADER), token))

    async def server_instances() -> list[dict[str, Any]]:
        """List the servers of the run and where they listen."""
        return instances()

    app.get("/")(liveness)
    app.get("/global_config_dict_yaml")(global_config_dict_yaml)
    app.get("/server_instances")(server_instances)
    if versions is not None:
        _add_version_routes(app, versions, instances, token)
    return app


def _add_version_routes(
    app: FastAPI, versions: RunVersion, instances: Callable[[], list[dict[str, Any]]], token: str | None
) -> None:
    async def tell_version(other_than: int | None = None, wait_s: float = 0.0) -> dict[str, Any]:
        """Tell the version in force; with `wait_s`, as soon as it is another one than `other_than`."""
        if wait_s > 0:
            await versions.wait_for_other_than(other_than, min(wait_s, LONGEST_WAIT_S))
        return {"version": versions.version}

    async def announce(body: Announcement, request: Request) -> Any:
        """Take a new policy version, and tell every agent and model server of it."""
        if token is not None and not same_token(request.headers.get(TOKEN_HEADER), token):
            raise HTTPException(
                401,
                "a policy version was not taken: the request does not carry the token of the run.\n"
                f"hint: `nemo_gym.policy_versions.announce` sends it; others send it as the header `{TOKEN_HEADER}`",
            )
        try:
            problems = await versions.announce(body, instances())
        except PolicyVersionRefused as error:
            return json_reply(409, {"detail": str(error), "version": error.current})
        except GymError as error:
            raise HTTPException(422, str(error)) from error
        if not problems:
            return {"version": versions.version}
        named = "\n".join(f"  {name}: {problem}" for name, problem in problems.items())
        detail = (
            f"policy version {body.version} is in force, but these servers have not taken it:\n{named}\n"
            "hint: announce the same version again once they answer; that is safe"
        )
        return json_reply(502, {"detail": detail, "version": versions.version, "problems": problems})

    app.get(VERSION_PATH)(tell_version)
    app.post(VERSION_PATH)(announce)
