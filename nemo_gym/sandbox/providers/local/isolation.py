# SPDX-License-Identifier: Apache-2.0
"""How far a command on this machine is kept apart from the rest of it, and where its files are.

With bubblewrap a command sees a read-only system and its own folders, and has no network but a loopback of its own.
With `rlimits` the kernel's rules for files (Landlock) show it the same, and a filter on system calls leaves it
no sockets, as in `nemo_gym.code_execution`. With `none` the limits of the supervisor are all there is: the command sees
the machine's files and networks with the rights of its user.
"""

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from nemo_gym._execution.isolation import ETC_FILES, system_paths, system_view

Isolation = Literal["bubblewrap", "rlimits", "none"]

SANDBOX_MARK = "NEMO_GYM_SANDBOX_ID"
DEFAULT_WORKDIR = "/workspace"
STATE_FILE = "state.json"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# For commands that look up kinds of files, or check certificates.
OWN_ETC_FILES = ("mime.types", "ssl")


@dataclass(frozen=True)
class LocalSandbox:
    """A sandbox on this machine: the folder that holds it, and how its commands run."""

    root: str
    isolation: Isolation
    workdir: str
    """Working folder as commands see it (bubblewrap) or as the spec named it (rlimits, none)."""
    env: Mapping[str, str]
    memory_mib: int
    expires_at: float

    @property
    def work(self) -> Path:
        """Where the working folder really is."""
        return Path(self.root) / "work"

    @property
    def tmp(self) -> Path:
        """Where the private temporary folder really is."""
        return Path(self.root) / "tmp"

    def inside(self, path: str) -> str:
        """`path` as commands see it: with bubblewrap as it is, else moved to where the folders really are."""
        absolute = os.path.normpath(os.path.join(self.workdir, path))
        if self.isolation == "bubblewrap" or _within(absolute, self.root):
            return absolute
        for seen, real in ((self.workdir, self.work), ("/tmp", self.tmp)):
            if _within(absolute, seen):
                return os.path.normpath(real / os.path.relpath(absolute, seen))
        return absolute

    def base_env(self) -> dict[str, str]:
        """What every command finds in its environment, before the spec's own variables."""
        has_own_paths = self.isolation == "bubblewrap"
        home = self.workdir if has_own_paths else str(self.work)
        tmp = "/tmp" if has_own_paths else str(self.tmp)
        return {"PATH": SYSTEM_PATH, "HOME": home, "TMPDIR": tmp, "LANG": "C.UTF-8"}

    def save(self) -> None:
        """Write down what another process needs to take this sandbox up; for the owner's eyes, as it holds `env`."""
        fd = os.open(Path(self.root) / STATE_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "w", encoding="utf-8") as out:
            json.dump({"schema": 1, **asdict(self)}, out)

    @classmethod
    def load(cls, root: Path) -> "LocalSandbox":
        """The sandbox that `save` wrote down in `root`."""
        state: dict[str, Any] = json.loads((root / STATE_FILE).read_text(encoding="utf-8"))
        state.pop("schema")
        return cls(**{**state, "root": str(root)})


def _within(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder


def bubblewrap_prefix(executable: str, sandbox: LocalSandbox, cwd: str, read_only_paths: Sequence[str]) -> list[str]:
    """The `bwrap` call that goes before a command."""
    prefix = [executable, "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    if _can_disable_namespaces(executable):
        prefix += ["--disable-userns"]
    prefix += ["--hostname", "sandbox", *system_view((*ETC_FILES, *OWN_ETC_FILES), read_only_paths)]
    prefix += ["--bind", str(sandbox.tmp), "/tmp", "--bind", str(sandbox.work), sandbox.workdir]
    return [*prefix, "--chdir", cwd, "--"]


@lru_cache(maxsize=1)
def _can_disable_namespaces(executable: str) -> bool:
    """Whether this bubblewrap, of version 0.8 or later, can keep commands from making user namespaces."""
    said = subprocess.run([executable, "--help"], capture_output=True, text=True, timeout=30, check=False)
    return "--disable-userns" in said.stdout


def visible_paths(sandbox: LocalSandbox, read_only_paths: Sequence[str]) -> dict[str, list[str]]:
    """Return what a command may read, and what it may change, without bubblewrap."""
    readable = [*system_paths((*ETC_FILES, *OWN_ETC_FILES)), *read_only_paths]
    return {"readable": readable, "writable": [str(sandbox.work), str(sandbox.tmp)]}


def kill_marked(sandbox_id: str) -> int:
    """Kill every process that bears the sandbox's mark in its environment; how many there were."""
    mark = f"{SANDBOX_MARK}={sandbox_id}".encode()
    killed = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
                    killed += 1
    return killed
