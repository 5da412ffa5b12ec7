# SPDX-License-Identifier: Apache-2.0
"""`gym view`: look at rollouts, inputs, failures or datasets in a browser, or write a static report of them.

Only this command imports Gradio, the extra `viewer`. It opens a browser only if asked.
"""

import secrets
import socket
from pathlib import Path
from typing import Annotated

from pydantic import Field

from nemo_gym._config.command_flags import Flag
from nemo_gym._util.reachable_addresses import is_loopback
from nemo_gym._viewer.files.file_index import ReportError
from nemo_gym._viewer.html.report_export import export_report
from nemo_gym._viewer.page.open_files import OpenFiles, open_files
from nemo_gym._viewer.page.serve import find_url, import_page, listen, require_gradio, serve
from nemo_gym.cli import render
from nemo_gym.cli.settings import OneOrMany, parse_config, read_settings
from nemo_gym.config_types import BaseNeMoGymCLIConfig

_OPEN_TO_ALL = (
    "Anyone who can reach this machine can read these files, and the config of their run, without a password.\n"
    "hint: `--token` admits only those who have the printed URL; without `--host`, only this machine can connect"
)


class JsonlDatasetViewerConfig(BaseNeMoGymCLIConfig):
    """Look at rollouts, failures and datasets in a browser."""

    jsonl_fpath: OneOrMany = Field(min_length=1, description="JSONL files to view: rollouts, failures, datasets.")
    server_host: Annotated[str, Flag("--host")] = Field(
        default="127.0.0.1", description="Host to serve on; by default 127.0.0.1, and 0.0.0.0 for every address."
    )
    server_port: Annotated[int, Flag("--port")] = Field(
        default=7860, ge=0, le=65535, description="Port; by default 7860, or the next free one if it is taken."
    )
    export_dirpath: Annotated[str | None, Flag("--export")] = Field(
        default=None, description="Write a static HTML report into this folder instead."
    )
    export_rollouts: Annotated[int, Flag()] = Field(default=100, ge=0, description="Rollouts per file in the report.")
    open_browser: Annotated[
        bool, Flag("--browser"), Flag("--no-browser", constant="false", help="Do not open a browser (the default).")
    ] = Field(default=False, description="Open the page in a browser.")
    require_token: Annotated[bool, Flag("--token")] = Field(
        default=False, description="Serve the page only to those who have the printed URL."
    )
    allowed_hosts: list[str] = Field(
        default_factory=list, description="Additional host names that the viewer accepts; `*` for all."
    )
    allow_other_users: bool = Field(default=False, description="Show the page to other users of this machine too.")


def view(overrides: list[str]) -> int:
    """Serve the page until it is stopped, or write a report."""
    config = read_settings(JsonlDatasetViewerConfig, parse_config(overrides, JsonlDatasetViewerConfig))
    paths = [Path(path).expanduser() for path in config.jsonl_fpath]
    missing = [repr(str(path)) for path in paths if not path.exists()]
    if missing:
        raise ReportError(f"there is no file {', '.join(missing)}.\nhint: check the path, relative to this folder")
    if config.export_dirpath is not None:
        with _open_files(paths) as files:
            indexes = [files.files[number].index for number in files.runs]
            written = export_report(indexes, config.export_dirpath, rollouts=config.export_rollouts)
        render.data(f"Wrote {written.index}: {written.n_rollouts} rollouts, {written.size_bytes / 1e6:.1f} MB")
        return 0
    require_gradio()
    token = secrets.token_urlsafe(24) if config.require_token else None
    with listen(config.server_host, config.server_port) as listening:
        _announce(config, paths, listening, token)
        import_page()  # before there are indexes to build: they would slow it down
        from nemo_gym._servers.http.admission import (
            AccessRules,
        )  # loads what servers need, after the address is printed

        with _open_files(paths) as files:
            access = AccessRules(tuple(config.allowed_hosts), token, config.allow_other_users)
            serve(files, listening, config.server_host, access)
    return 0


def _announce(config: JsonlDatasetViewerConfig, paths: list[Path], listening: socket.socket, token: str | None) -> None:
    url = find_url(listening)
    port = listening.getsockname()[1]
    if token is not None:
        url = f"{url}/?token={token}"
    if config.server_port not in (0, port):
        render.note(f"Port {config.server_port} is taken; {port} is free.")
    render.data(f"Viewing {', '.join(map(str, paths))} at {url}")
    if token is None and not is_loopback(listening.getsockname()[0]):
        render.note(_OPEN_TO_ALL)
    render.note("Press Ctrl-C to stop.")
    if config.open_browser:
        import webbrowser

        webbrowser.open(url)


def _open_files(paths: list[Path]) -> OpenFiles:
    from nemo_gym._servers.process_environment import (
        run_files_folder,
    )  # loads what servers need, after the address is printed

    return open_files(paths, user_cache_dir=run_files_folder())
