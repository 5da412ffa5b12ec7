# SPDX-License-Identifier: Apache-2.0
"""The version of the policy's weights: what one server was told, and how everyone in a run is told of a new one.

`VersionCell` is what a server knows; the workers of one server share it by a file. `RunVersion` is what the head server
knows: it passes an announcement on to every server and to whoever else asked to be told, and wakes those who wait.
"""

import asyncio
import fcntl
import logging
import mmap
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym._util.known_secrets import describe_error
from nemo_gym.errors import GymError

LOG = logging.getLogger(__name__)
VERSION_PATH = "/policy_version"
_VERSION = Struct("=q")
TOLD_TYPES = ("responses_api_models", "responses_api_agents")
"""The types of servers that are told: models mark their answers with it, agents the rows of their rollouts."""


class PolicyVersionRefused(GymError, ValueError):
    """A policy version was announced that is older than the one in force."""

    def __init__(self, version: int, current: int) -> None:
        super().__init__(version, current)
        self.version = version
        self.current = current

    def __str__(self) -> str:
        return (
            f"policy version {self.version} was refused: version {self.current} is in force, and versions only grow.\n"
            "hint: `GET /policy_version` tells the version to go on from; a trainer that has gone back to an older "
            "checkpoint says so with `restart: true`"
        )


class Announcement(BaseModel):
    """A new version of the weights."""

    model_config = ConfigDict(extra="forbid")

    version: Annotated[int, Field(strict=True, ge=0, lt=2**62)]
    restart: Annotated[bool, Field(strict=True)] = False
    """Take it also if it is older than the one in force: the trainer has gone back to a checkpoint."""
    servers: list[str] | None = None
    """Tell only these; None for all model and agent servers of the run."""


def check_step(current: int | None, announced: Announcement) -> None:
    """Raise PolicyVersionRefused if `announced` may not follow `current`."""
    if current is not None and announced.version < current and not announced.restart:
        raise PolicyVersionRefused(announced.version, current)


class VersionCell:
    """The version that a server was told last; None before the first."""

    def __init__(self, shared: Path | None = None) -> None:
        """`shared`: a file by which the workers of one server know the same version."""
        self._version: int | None = None
        self._file: int | None = None
        if shared is not None:
            self._file = os.open(shared, os.O_RDWR | os.O_CREAT, 0o600)
            os.ftruncate(self._file, _VERSION.size)
            self._memory = mmap.mmap(self._file, _VERSION.size)

    def get(self) -> int | None:
        if self._file is None:
            return self._version
        # Zero stands for none, which is what a new file holds.
        stored: int = _VERSION.unpack_from(self._memory)[0]
        return stored - 1 if stored else None

    def set(self, announced: Announcement) -> None:
        """Take a version over; PolicyVersionRefused if it is older than the one in force."""
        if self._file is None:
            check_step(self._version, announced)
            self._version = announced.version
            return
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            check_step(self.get(), announced)
            _VERSION.pack_into(self._memory, 0, announced.version + 1)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


# --- in the whole run -------------------------------------------------------------------------------------------------

Problems = dict[str, str]
"""Who could not be told, and why."""
Relay = Callable[[Announcement], Awaitable[Problems]]
Instances = Sequence[Mapping[str, Any]]
"""Servers as the head server lists them."""
TellServers = Callable[[Instances, Announcement], Awaitable[Problems]]
Listener = Callable[[int, bool], None]
"""Hears a version, and whether it is a restart."""


class RunVersion:
    """The policy version of a run. Announcements take effect one after the other."""

    def __init__(self, tell: TellServers) -> None:
        """`tell` tells the servers of a list."""
        self._tell = tell
        self._lock = asyncio.Lock()
        self._announced: Announcement | None = None
        self._relays: list[Relay] = []
        self._listeners: list[Listener] = []
        self._changed = asyncio.Event()
        self._told: set[tuple[Any, Any]] = set()
        self._late: set[Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def version(self) -> int | None:
        """The version in force."""
        if self._announced is None:
            return None
        return self._announced.version

    async def announce(self, announced: Announcement, instances: Instances) -> Problems:
        """Tell everyone; return who could not be told. When it returns, new calls to all others carry the version.

        Announcing the version in force again is allowed, and reaches those that were missed.
        """
        async with self._lock:
            check_step(self.version, announced)
            servers = list_told(instances, announced.servers)
            self._announced = announced
            self._loop = asyncio.get_running_loop()
            self._told |= {_identify(server) for server in servers}
            told = await asyncio.gather(self._tell(servers, announced), *(relay(announced) for relay in self._relays))
            for listener in list(self._listeners):
                listener(announced.version, announced.restart)
            self._changed.set()
            self._changed = asyncio.Event()
        return {name: problem for problems in told for name, problem in problems.items()}

    def note_instances(self, instances: Instances) -> None:
        """Tell servers that have begun to run after the last announcement, such as a replica that was restarted."""
        announced = self._announced
        if announced is None:
            return
        new = [server for server in list_told(instances, announced.servers) if _identify(server) not in self._told]
        if new and self._loop is not None:
            self._told |= {_identify(server) for server in new}
            # The list of servers may be renewed by another thread than the one that serves it.
            telling = asyncio.run_coroutine_threadsafe(self._tell_late(new, announced), self._loop)
            self._late.add(telling)
            telling.add_done_callback(self._late.discard)

    async def _tell_late(self, servers: Instances, announced: Announcement) -> None:
        for name, problem in (await self._tell(servers, announced)).items():
            LOG.warning("%s does not know policy version %d: %s", name, announced.version, problem)

    async def wait_for_other_than(self, version: int | None, timeout_s: float) -> int | None:
        """Return the version in force once it is another one than `version`, or after `timeout_s`."""
        changed = self._changed
        if self.version == version:
            try:
                async with asyncio.timeout(timeout_s):
                    await changed.wait()
            except TimeoutError:
                pass
        return self.version

    @contextmanager
    def relay_to(self, relay: Relay) -> Iterator[Announcement | None]:
        """Call `relay` with every announcement while the context lasts; yield the last one."""
        self._relays.append(relay)
        try:
            yield self._announced
        finally:
            self._relays.remove(relay)

    @contextmanager
    def listen_with(self, listener: Listener) -> Iterator[int | None]:
        """Call `listener` with every version while the context lasts; yield the one in force."""
        self._listeners.append(listener)
        try:
            yield self.version
        finally:
            self._listeners.remove(listener)


def list_told(instances: Instances, names: Sequence[str] | None) -> list[Mapping[str, Any]]:
    """Return the servers that are told of versions: those of `names` if it is given, else models and agents."""
    if names is None:
        return [server for server in instances if server.get("server_type") in TOLD_TYPES]
    known = {server.get("process_name") for server in instances}
    if unknown := [name for name in names if name not in known]:
        raise GymError(
            f"no server of this run is called {', '.join(map(repr, unknown))}.\n"
            f"hint: its servers are {', '.join(sorted(map(str, known))) or 'none'}"
        )
    return [server for server in instances if server.get("process_name") in names]


def _identify(server: Mapping[str, Any]) -> tuple[Any, Any]:
    return server.get("url"), server.get("replica")


async def tell_over_http(
    instances: Instances, announced: Announcement, headers: Mapping[str, str], timeout_s: float
) -> Problems:
    """Announce a version to servers; return those that did not take it. One without the route is left alone."""
    import aiohttp

    # A session of its own: announcements are rare, and the head server may run on an event loop of its own.
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_s), headers=headers) as session:
        body = announced.model_dump(exclude={"servers"})

        async def tell(server: Mapping[str, Any]) -> tuple[str, str | None]:
            name = str(server.get("process_name"))
            url = f"{server.get('url')}{VERSION_PATH}"
            try:
                async with session.post(url, json=body) as reply:
                    if reply.ok or (reply.status in (404, 405) and server.get("server_type") != TOLD_TYPES[0]):
                        return name, None
                    return name, f"{url} answered {reply.status}: {(await reply.text())[:500]}"
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                return name, f"{url} could not be called: {describe_error(error)}"

        told = await asyncio.gather(*map(tell, instances))
    return {name: problem for name, problem in told if problem is not None}
