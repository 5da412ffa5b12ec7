# SPDX-License-Identifier: Apache-2.0
"""A sandbox on this machine: where its files are, and what its commands see of the machine.

With bubblewrap or `rlimits` they see a read-only system and the sandbox's own folders, and no network: see
`nemo_gym._isolation.isolation`. With `none` there are only the supervisor's limits: commands can use the machine's
files and networks with the rights of their user.
"""

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from nemo_gym._isolation.inside.containment import remove_folder
from nemo_gym._isolation.isolation import ETC_FILES, Isolation, build_bubblewrap_prefix, list_system_paths

LOG = logging.getLogger(__name__)

LocalIsolation = Isolation | Literal["none"]

FOLDER_PREFIX = "nemo-gym-sandbox-"
SANDBOX_MARK = "NEMO_GYM_SANDBOX_ID"
DEFAULT_WORKDIR = "/workspace"
STATE_FILE = "state.json"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The extra ones are for commands that look up file types or check certificates.
COMMAND_ETC_FILES = (*ETC_FILES, "mime.types", "ssl")


@dataclass(frozen=True)
class LocalSandbox:
    """The folder of a sandbox, and how its commands run."""

    root: str
    isolation: LocalIsolation
    workdir: str
    """Working folder as commands see it (bubblewrap) or as the spec names it (rlimits, none)."""
    env: Mapping[str, str]
    memory_mib: int
    disk_mib: int
    expires_at: float
    sockets: Mapping[str, str] = field(default_factory=dict)
    """Sockets of this machine that commands may connect to: path inside -> path outside."""
    has_network: bool = False
    """Whether commands share this machine's networks."""

    @property
    def work(self) -> Path:
        """The real path of the working folder."""
        return Path(self.root) / "work"

    @property
    def tmp(self) -> Path:
        """The real path of the private temporary folder."""
        return Path(self.root) / "tmp"

    def translate_path(self, path: str) -> str:
        """Return `path` as commands see it: unchanged with bubblewrap, else mapped to the real folders."""
        absolute = os.path.normpath(os.path.join(self.workdir, path))
        if self.isolation == "bubblewrap" or _is_within(absolute, self.root):
            return absolute
        for seen, real in ((self.workdir, self.work), ("/tmp", self.tmp)):
            if _is_within(absolute, seen):
                return os.path.normpath(real / os.path.relpath(absolute, seen))
        return absolute

    def build_base_env(self) -> dict[str, str]:
        """Return the environment of every command, before the spec's own variables."""
        home = str(self.work)
        tmp = str(self.tmp)
        if self.isolation == "bubblewrap":
            home = self.workdir
            tmp = "/tmp"
        return {"PATH": SYSTEM_PATH, "HOME": home, "TMPDIR": tmp, "LANG": "C.UTF-8"}

    def save(self) -> None:
        """Save the state that another process needs to connect; only the owner can read it, as it holds `env`."""
        fd = os.open(Path(self.root) / STATE_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "w", encoding="utf-8") as out:
            json.dump({"schema": 1, **asdict(self)}, out)

    @classmethod
    def load(cls, root: Path) -> "LocalSandbox":
        """Return the sandbox that `save` wrote to `root`."""
        state: dict[str, Any] = json.loads((root / STATE_FILE).read_text(encoding="utf-8"))
        state.pop("schema")
        return cls(**{**state, "root": str(root)})

    def build_bubblewrap_prefix(
        self,
        bubblewrap: str,
        folder: str,
        read_only_paths: Sequence[str],
        become: tuple[int, int] | None = None,
        filter_fd: int | None = None,
    ) -> list[str]:
        """Return the `bwrap` call to put before a command.

        With `become`, it starts as root, to see paths that the command's user cannot reach, and then becomes that user.
        `filter_fd` is where it finds a filter on system calls.
        """
        executable = shutil.which(bubblewrap) or bubblewrap
        if become is None:
            options = ["--unshare-user"]
            if _can_disable_namespaces(executable):
                options += ["--disable-userns"]
        else:
            options = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        if self.has_network:
            options += ["--share-net"]
        if filter_fd is not None:
            options += ["--seccomp", str(filter_fd)]
        shared = [word for inside, outside in self.sockets.items() for word in ("--bind", outside, inside)]
        # The sandbox's own /tmp hides the machine's, so paths in there are mounted again.
        for path in (path for path in read_only_paths if _is_within(path, "/tmp")):
            for parent in reversed(Path(path).parents[:-2]):
                shared += ["--perms", "0755", "--dir", str(parent)]
            shared += ["--ro-bind", path, path]
        prefix = build_bubblewrap_prefix(
            executable,
            options,
            etc_files=COMMAND_ETC_FILES,
            read_only_paths=read_only_paths,
            mounts=["--bind", str(self.tmp), "/tmp", "--bind", str(self.work), self.workdir, *shared],
            folder="/" if become else folder,
        )
        if become is not None:
            # Root without capabilities cannot enter another user's folder, so change to it afterwards.
            prefix += ["setpriv", f"--reuid={become[0]}", f"--regid={become[1]}", "--clear-groups", "--"]
            prefix += ["env", "-C", folder]
        return prefix

    def list_visible_paths(self, read_only_paths: Sequence[str]) -> dict[str, list[str]]:
        """Return what a command may read and write without bubblewrap."""
        readable = [*list_system_paths(COMMAND_ETC_FILES), *read_only_paths]
        return {"readable": readable, "writable": [str(self.work), str(self.tmp)]}


def _is_within(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder


@lru_cache(maxsize=1)
def _can_disable_namespaces(executable: str) -> bool:
    """Return whether this bubblewrap (0.8 or later) can keep commands from creating user namespaces."""
    done = subprocess.run([executable, "--help"], capture_output=True, text=True, timeout=30, check=False)
    return "--disable-userns" in done.stdout


def kill_marked(sandbox_id: str) -> int:
    """Kill every process with the sandbox's mark in its environment; return how many were killed."""
    mark = f"{SANDBOX_MARK}={sandbox_id}".encode()
    killed = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
                    killed += 1
    return killed


def remove_expired(base_dir: Path) -> None:
    """Remove expired sandboxes that their owners left behind."""
    for folder in base_dir.glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            ours = folder.lstat().st_uid == os.geteuid()
            if ours and LocalSandbox.load(folder).expires_at < time.time():
                LOG.warning("removing local sandbox %r: its time to live is over", folder.name)
                kill_marked(folder.name)
                remove_folder(str(folder))
