# SPDX-License-Identifier: Apache-2.0
"""The Hugging Face Hub for tests: its REST protocol over real HTTP on a free port, for the real `huggingface_hub`.

Datasets, branches, pull requests, large files by the LFS protocol, collections, tokens, private repositories, byte
ranges. It offers no Xet: clients are to be run with `HF_HUB_DISABLE_XET=1`. Faults are switched on by a test.

    with FakeHub() as hub:
        hub.add_dataset("org/set", {"train.jsonl": b"{}\n"})
        HfApi(endpoint=hub.url).dataset_info("org/set")
"""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support.hub_routes import BAD_TOKEN, HubRoutes, cut, refused
from tests.support.hub_store import READER, WRITER, Fault


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator["FakeHub"]:
    """A Hub that the client library in this process takes for the public one; between attempts nothing is waited."""
    from huggingface_hub import constants

    with FakeHub() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.partition("/{repo_id}")
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", running.url + "".join(template[1:]))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-login"))
        monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
        monkeypatch.setattr("time.sleep", lambda _: None)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield running


def environment(hub: "FakeHub", home: Path) -> dict[str, str]:
    """What makes a process of its own take a hub for the public one."""
    return {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(home), "HF_TOKEN": ""}


class FakeHub(HubRoutes):
    """The Hub, running inside `with`."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[tuple[str, str, dict[str, str]]] = []
        self.faults: list[Fault] = []

    # --- what a test sets up and looks at ---

    def add_collection(self, slug: str) -> list[str]:
        return self.collections.setdefault(slug, [])

    def fail(self, method: str, path: str, status: int, times: int = 1) -> None:
        """Answer `times` requests to paths that match with a status."""
        self.faults.append(Fault(method, re.compile(path), status=status, times=times))

    def cut(self, method: str, path: str, after_bytes: int = 0, times: int = 1) -> None:
        """Cut the connection of `times` requests after so many bytes of the body, theirs or ours."""
        self.faults.append(Fault(method, re.compile(path), after_bytes=after_bytes, times=times))

    def hang(self, method: str, path: str, after_bytes: int = 0) -> threading.Event:
        """Leave one request hanging after so many bytes, until the event is set."""
        released = threading.Event()
        self.faults.append(Fault(method, re.compile(path), after_bytes=after_bytes, released=released))
        return released

    def calls(self, method: str, path: str) -> list[dict[str, str]]:
        """The headers of every request so far to paths that match."""
        return [headers for verb, where, headers in self.received if verb == method and re.search(path, where)]

    # --- running ---

    def __enter__(self) -> "FakeHub":
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(10), "the hub did not start"
        return self

    def __exit__(self, *_: object) -> None:
        for fault in self.faults:
            if fault.released is not None:
                fault.released.set()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(300)

    def _serve(self, started: threading.Event) -> None:
        async def serve() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            runner = web.AppRunner(self._app(), shutdown_timeout=0)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}"
            started.set()
            await self._stop.wait()
            await runner.cleanup()

        asyncio.run(serve())

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=1 << 30)
        for method, path, handler in self._routes():
            app.router.add_route(method, path, handler)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        self.received.append((request.method, request.path, dict(request.headers)))
        fault = self._fault_of(request)
        if fault is not None and fault.status:
            return refused(fault.status, "out of order")
        if fault is not None and request.method in ("PUT", "POST"):
            await request.content.read(fault.after_bytes)
            return cut(request)
        if self._token(request) not in (None, WRITER, READER):
            return refused(401, BAD_TOKEN)
        if fault is not None:
            self._faulty[id(request)] = fault
        response: web.StreamResponse = await handler(request)
        return response

    def _fault_of(self, request: web.Request) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.method == request.method and fault.path.search(request.path):
                fault.times -= 1
                return fault
        return None
