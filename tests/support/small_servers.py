# SPDX-License-Identifier: Apache-2.0
"""`gym env start`: servers written into a folder, a real process, and a look at what it leaves."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import yaml

from tests.support.warm_start import WarmProcess

PATIENCE_S = 300
_MARK = "NEMO_GYM_TEST_MARK"
# A run draws several ports before it listens on the first one.
_PROMISED: deque[int] = deque(maxlen=1000)

APP = """
import asyncio, os, subprocess, sys, time
from contextlib import asynccontextmanager

{on_import}

from nemo_gym.base_resources_server import BaseResourcesServerConfig, BaseVerifyRequest, SimpleResourcesServer


class Small(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    def setup_webserver(self):
        app = super().setup_webserver()
        {on_setup}
        return app

    async def verify(self, body: BaseVerifyRequest):
        raise NotImplementedError


if __name__ == "__main__":
    Small.run_webserver()
"""


def free_port() -> int:
    """A port that nobody has or was just promised; not one that the system hands out, for it might do so before."""
    drawn = iter(lambda: random.randint(24_000, 32_000), None)
    port = next(port for port in drawn if port not in _PROMISED and is_free(port))
    _PROMISED.append(port)
    return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for `condition`; the deadline only ends a test that has failed."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)
    return value


def write_server(
    root: Path, name: str, *, on_import: str = "", on_setup: str = "pass", app: str | None = None, **config: Any
) -> int:
    """Write a resources server into `root`, with code of its own; the port it is to listen on.

    `name` may be a nested folder, `group/name`.
    """
    folder = root / "resources_servers" / name
    (folder / "configs").mkdir(parents=True)
    instance = folder.name
    (folder / "app.py").write_text(
        app or APP.format(on_import=on_import, on_setup=on_setup.replace("\n", "\n        "))
    )
    port = config.setdefault("port", free_port())
    block = {"entrypoint": "app.py", "domain": "other", **config}
    text = yaml.safe_dump({instance: {"resources_servers": {name: block}}})
    (folder / "configs" / f"{instance}.yaml").write_text(text)
    return port


class Gym:
    """A running `gym env start`; `fresh` for one that has an interpreter started for it, with `options`."""

    def __init__(
        self,
        root: Path,
        *arguments: str,
        head_port: int | None = None,
        env: Mapping[str, str] | None = None,
        fresh: bool = False,
        **options: Any,
    ) -> None:
        self.head_port = head_port or free_port()
        self.mark = uuid4().hex
        cwd = root / "cwd"
        cwd.mkdir(parents=True, exist_ok=True)
        self.environment = {**os.environ, "NEMO_GYM_EXTRA_ROOTS": str(root), _MARK: self.mark, **(env or {})}
        words = [*arguments, f"++head_server.port={self.head_port}"]
        shared: Any = {"cwd": cwd, "env": self.environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        if fresh:
            command = [sys.executable, "-m", "nemo_gym.cli.main", *words]
            self.process = subprocess.Popen(command, text=True, **shared, **options)
        else:
            self.process = WarmProcess(words, **shared)
        self.lines = list[str]()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(ValueError):  # closed at the end of the test
            self.lines.extend(line.rstrip("\n") for line in self.process.stdout)

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    def wait_until_said(self, text: str) -> None:
        def is_said() -> bool:
            ended = self.process.poll() is not None
            if ended:
                self._reader.join(PATIENCE_S)
            assert text in self.said or not ended, f"ended without saying {text!r}:\n{self.said}"
            return text in self.said

        until(is_said, f"{text!r} is said; so far:\n{self.said}")

    def wait_until_ready(self) -> None:
        self.wait_until_said("servers ready!")

    def kill(self, number: int = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    @property
    def tree(self) -> list[psutil.Process]:
        """Every process of this run, whoever its parent is: found by a mark in the environment."""
        found = []
        main = self.process.pid if self.process.poll() is None else None
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                is_ours = process.pid == main or process.environ().get(_MARK) == self.mark
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def wait_until_nothing_is_left(self, *ports: int) -> None:
        until(lambda: not self.tree, "no process is left")
        until(lambda: all(map(is_free, (self.head_port, *ports))), "no port is left bound")

    def close(self) -> None:
        for process in (self.process, *self.tree):
            with suppress(psutil.Error, ProcessLookupError):
                process.kill()
        self.process.wait()
        self._reader.join(PATIENCE_S)
        self.process.stdout.close()


@contextmanager
def gym(root: Path, *arguments: str, **options: Any) -> Iterator[Gym]:
    """A `gym` command; whatever becomes of the test, it leaves no process behind."""
    started = Gym(root, *arguments, **options)
    try:
        yield started
    finally:
        started.close()


def start(root: Path, *servers: str, **options: Any):
    """`gym env start` with the named resources servers; `overrides` are passed on."""
    overrides = options.pop("overrides", ())
    flags = [word for name in servers for word in ("--resources-server", name)]
    return gym(root, "env", "start", *flags, *overrides, **options)
