# SPDX-License-Identifier: Apache-2.0
"""Fake container engines on PATH, and ways to look at processes."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

HERE = Path(__file__).parent


@dataclass(frozen=True)
class FakeEngine:
    """A container engine's client program that runs commands on this machine and remembers its arguments."""

    folder: Path

    def calls(self, verb: str | None = None) -> list[list[str]]:
        log = self.folder / "calls.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        return [call for call in map(json.loads, lines) if verb is None or call[0] == verb]

    def records(self) -> list[Path]:
        """What the engine holds: containers or instances."""
        return [*self.folder.glob("*.instance"), *self.folder.glob("nemo-gym-*.json")]


def install(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    folder = tmp_path / "engine"
    folder.mkdir()
    program = folder / name
    program.write_text(f"#!{sys.executable} -IS\n" + (HERE / f"fake_{name}.py").read_text())
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return FakeEngine(folder)


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    return install("docker", tmp_path, monkeypatch)


@pytest.fixture
def apptainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    return install("apptainer", tmp_path, monkeypatch)


@dataclass(frozen=True)
class Processes:
    """Processes that carry a word nobody else uses."""

    token: str

    def sleep(self) -> str:
        """A command that never ends by itself and carries the word in its arguments."""
        return f"sh -c 'while :; do sleep 600; done' {self.token}"

    def running(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    arguments = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if self.token.encode() in arguments:
                    found.append(int(entry.name))
        return found


@pytest.fixture
def processes() -> Processes:
    return Processes(f"token-{uuid4().hex}")


async def eventually(condition: Callable[[], object]) -> None:
    """Wait for something that must come true; the test's own time limit is the deadline."""
    while not condition():  # noqa: ASYNC110  (other processes set no event)
        await asyncio.sleep(0.02)


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    return eventually
