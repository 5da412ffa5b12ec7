# SPDX-License-Identifier: Apache-2.0
"""Policy versions in this process: the cell of a server, its route, and the token that opens it."""

from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request

from nemo_gym._servers.policy_versions.announcing import (
    VERSION_PATH,
    Announcement,
    Instances,
    PolicyVersionRefused,
    Problems,
    VersionCell,
    tell_over_http,
)
from nemo_gym._servers.process_environment import read_run_token, this_worker
from nemo_gym._servers.processes.private_run_files import TOKEN_HEADER, same_token

_TELL_TIMEOUT_S = 30.0


def open_version_cell() -> VersionCell:
    """Return what a server of this process knows of versions; the workers of one server share it."""
    worker = this_worker()
    return VersionCell(None if worker is None else Path(worker.folder) / "policy-version")


def require_run_token(request: Request) -> None:
    """Raise a 401 unless `request` has the token of this run; outside of a run there is none to ask for."""
    token = read_run_token()
    if token is not None and not same_token(request.headers.get(TOKEN_HEADER), token):
        raise HTTPException(
            401,
            f"{request.method} {request.url.path} was refused: it needs the token of the run, so that programs which "
            "may only ask the model cannot decide how they are scored.\n"
            f"hint: send it as the header `{TOKEN_HEADER}`; `nemo_gym.policy_versions` finds it for the user who "
            "started the servers, others are given it as NEMO_GYM_RUN_TOKEN",
        )


def add_version_routes(app: FastAPI, cell: VersionCell) -> None:
    """Let `app` tell the version in `cell`, and take a new one from who has the token of the run."""

    async def tell_version() -> dict[str, Any]:
        """Tell which policy version the server knows of."""
        return {"version": cell.get()}

    async def set_version(body: Announcement, request: Request) -> dict[str, Any]:
        """Take a new policy version from the head server."""
        require_run_token(request)
        try:
            cell.set(body)
        except PolicyVersionRefused as error:
            raise HTTPException(409, str(error)) from error
        return {"version": cell.get()}

    # Not in the schema: it is the head server's business, and tools are made from the schema.
    app.get(VERSION_PATH, include_in_schema=False)(tell_version)
    app.post(VERSION_PATH, include_in_schema=False)(set_version)


async def tell_servers(instances: Instances, announced: Announcement) -> Problems:
    """Announce a version to servers of this run; return those that did not take it."""
    token = read_run_token()
    return await tell_over_http(instances, announced, {TOKEN_HEADER: token} if token else {}, _TELL_TIMEOUT_S)
