# SPDX-License-Identifier: Apache-2.0
"""Put the page on a port: the socket listens at once, so that a browser may wait for it while Gradio is imported.

Nothing is fetched from elsewhere and nothing is sent anywhere: a content security policy holds the page to its own
server, whatever a rollout contains.
"""

import importlib
import importlib.util
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nemo_gym._util.garbage import pause_collections
from nemo_gym._util.reachable_addresses import reachable_url
from nemo_gym._viewer.html.elements import SCRIPT
from nemo_gym._viewer.page.open_files import OpenFiles
from nemo_gym.errors import GymError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from nemo_gym._servers.http.admission import AccessRules

INSTALL = 'pip install "nemo-gym[viewer]"'
_PORTS_TRIED = 100
_BACKLOG = 128
_SWITCH_INTERVAL_S = 0.001
_POLICY = (
    b"default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; form-action 'self'; "
    b"base-uri 'self'; frame-ancestors 'self'; object-src 'none'"
)


class ViewerUnavailable(GymError):
    """The page cannot be served: Gradio is not installed, or there is no port for it."""


def require_gradio() -> None:
    """Say what to install, if the page's library is not there."""
    if importlib.util.find_spec("gradio") is None:
        raise ViewerUnavailable(
            f"the viewer needs Gradio, which is not installed.\nhint: {INSTALL}\n"
            "hint: `gym view FILE --export DIR` writes a static report without it"
        )


def listen(host: str, port: int) -> socket.socket:
    """Open a socket on `port`, or on the next one that is free; 0 for any."""
    last = min(port + _PORTS_TRIED, 65535) if port else 0
    problem: OSError | None = None
    for candidate in range(port, last + 1):
        try:
            return _bind(host, candidate)
        except OSError as error:
            problem = error
            if isinstance(error, socket.gaierror):
                break
    said = problem.strerror if problem else "no such port"
    raise ViewerUnavailable(
        f"the viewer cannot listen on {host!r}, ports {port} to {last}: {said}.\n"
        "hint: choose others with `--host` and `--port`"
    )


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(_BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


def find_url(listening: socket.socket) -> str:
    """Return the address at which a browser finds the page."""
    host, port = listening.getsockname()[:2]
    return reachable_url(host, port)


def serve(files: OpenFiles, listening: socket.socket, host: str, access: "AccessRules") -> None:
    """Serve the page on `host`, to those whom `access` admits, until the process is told to stop."""
    import uvicorn

    from nemo_gym._servers.http.listening import choose_protocol

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """End when told to, and go on from there: uvicorn would let the signal end the process."""
            before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # Every open page holds a connection; to cut it off is no error.
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            await super().shutdown(sockets)

    config = uvicorn.Config(
        make_application(files, host, access),
        http=choose_protocol(host, access),
        ws="none",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    # A thread that indexes holds the interpreter this long at a time, and an answer takes it many times over.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    Server(config).run(sockets=[listening])


def import_page() -> None:
    """Import the page and Gradio, which takes seconds. Gradio reports to its makers unless it is told not to."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    with pause_collections():
        importlib.import_module("nemo_gym._viewer.page.gradio_app")


def make_application(files: OpenFiles, host: str, access: "AccessRules") -> "ASGIApp":
    """Make the page an ASGI application, for a server that listens on `host`."""
    import_page()
    import gradio as gr
    from fastapi import FastAPI

    from nemo_gym._viewer.page import gradio_app as app
    from nemo_gym._viewer.page.page_admission import PageAdmission

    page = app.Viewer(files)
    mounted = gr.mount_gradio_app(
        FastAPI(docs_url=None, redoc_url=None, openapi_url=None),
        page.blocks,
        path="/",
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        pwa=False,
        enable_monitoring=False,
        mcp_server=False,
        show_error=True,
        theme=app.make_theme(),
        css=app.STYLE_SHEET,
        head=f"<script>{SCRIPT}</script>",
    )
    return _OwnServerOnly(PageAdmission(mounted, host, access))


class _OwnServerOnly:
    """Adds the header that keeps the page from loading anything from elsewhere."""

    def __init__(self, inner: "ASGIApp") -> None:
        self._inner = inner

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        async def with_policy(message: "Message") -> None:
            if message["type"] == "http.response.start":
                added = [(b"content-security-policy", _POLICY), (b"referrer-policy", b"no-referrer")]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await self._inner(scope, receive, with_policy)
