# SPDX-License-Identifier: Apache-2.0
"""What the Hub for tests keeps: datasets with their commits, and what is to go wrong."""

import hashlib
import re
import threading
from dataclasses import dataclass, field

WRITER = "hf_writer"
READER = "hf_reader"
LFS_FROM_BYTES = 1000
"""Files from this size on are kept apart from commits."""


@dataclass
class Dataset:
    """A repository: the files of each commit, and the commits that branches and pull requests stand at."""

    name: str
    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    messages: list[tuple[str, str]] = field(default_factory=list)
    pull_requests: int = 0

    def commit(self, ref: str, files: dict[str, bytes], summary: str = "", description: str = "") -> str:
        sha = hashlib.sha1(f"{self.name}{len(self.commits)}".encode()).hexdigest()
        self.commits[sha] = files
        self.refs[ref] = sha
        self.messages.append((summary, description))
        return sha

    def sha_of(self, revision: str) -> str | None:
        return revision if revision in self.commits else self.refs.get(revision)

    def files(self, revision: str = "main") -> dict[str, bytes]:
        return self.commits[self.refs[revision]]


@dataclass
class Fault:
    """What goes wrong with requests to a path: a status, or a connection that is cut after so many bytes."""

    method: str
    path: re.Pattern[str]
    status: int = 0
    after_bytes: int = 0
    times: int = 1
    released: threading.Event | None = None
    """If set, the connection is not cut but left hanging until then."""


def git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
