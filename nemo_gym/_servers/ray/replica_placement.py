# SPDX-License-Identifier: Apache-2.0
"""Replicas of servers as actors of a Ray cluster: placed, followed and stopped from the process that launches a run.

Ray chooses the node, starts an actor again when it or its node is lost, and finds another node for it. This module
tells an actor what to run, and hears where it does. A replica that cannot start at all ends the run, as a process does;
one that is lost later comes back as often as `max_restarts` says.
"""

import asyncio
import contextlib
import importlib.metadata
import io
import json
import platform
import secrets
import time
import zipfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from nemo_gym._config.defaults import running_head_server_deps
from nemo_gym._config.server_types import RayPlacementConfig
from nemo_gym._servers.processes.server_logs import SHOWN_LINES
from nemo_gym._servers.processes.server_process import ServerDied
from nemo_gym._servers.ray import replica_actor as ray_actor
from nemo_gym._servers.ray.replicas import new_replica_id
from nemo_gym._util.known_secrets import KNOWN_SECRETS
from nemo_gym.errors import ConfigError

_REPORT_WAIT_S = 20.0
_ASK_AGAIN_S = 0.5
_PLACED_WITHIN_S = 30.0
_STOP_TIMEOUT_S = 20.0
_METHODS_AT_ONCE = 4
_MAX_BUNDLE_BYTES = 512 * 2**20


# --- what a node needs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeCode:
    """The code that nodes run, and how to send it to those that do not have it."""

    description: Mapping[str, Any]
    """See `nemo_gym._servers.ray.replica_actor.provide_code`."""
    bundle: tuple[Any, ...] = ()
    """A reference to the files as a zip archive; none if every node has them."""
    uv: tuple[Any, ...] = ()


def describe_code(python: str, roots: Sequence[Path]) -> dict[str, Any]:
    """Return what tells a node whether it has the files of this process, whose package lies in the last of `roots`."""
    plain = [str(root) for root in roots]
    return {
        "python": python,
        "python_version": platform.python_version(),
        "roots": plain,
        "names": [*(f"roots/{number}" for number in range(len(plain) - 1)), "."],
        "fingerprint": ray_actor.fingerprint_roots(plain),
        "requirements": _list_own_requirements(),
    }


def pack_code(roots: Sequence[Path]) -> bytes:
    """Return the files of `roots` as a zip archive, laid out by the `names` of `describe_code`."""
    buffer = io.BytesIO()
    size = 0
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number, root in enumerate(roots):
            prefix = "" if number == len(roots) - 1 else f"roots/{number}/"
            for path in ray_actor.list_files(root):
                content = path.read_bytes()
                size += len(content)
                if size > _MAX_BUNDLE_BYTES:
                    raise ConfigError(
                        f"the server folders under {root} have more than {_MAX_BUNDLE_BYTES >> 20} MiB, too much to be "
                        "sent to the nodes of a Ray cluster.\n"
                        "hint: give the nodes a shared disk with these folders at the same path"
                    )
                # A fixed time, so that equal files give equal archives.
                archive.writestr(zipfile.ZipInfo(prefix + str(path.relative_to(root))), content)
        archive.writestr(zipfile.ZipInfo("pyproject.toml"), _write_project(roots[-1]))
    return buffer.getvalue()


def _write_project(root: Path) -> str:
    """Return a project file for the package, by which a node knows its dependencies."""
    own = root / "pyproject.toml"
    if own.is_file():
        return own.read_text(encoding="utf-8")
    metadata = importlib.metadata.metadata("nemo-gym")
    plain = [text for text in metadata.get_all("Requires-Dist") or () if "extra ==" not in text]
    lines = ["[project]", 'name = "nemo-gym"', f"version = {json.dumps(metadata['Version'])}"]
    return "\n".join([*lines, f"dependencies = {json.dumps(plain)}", ""])


def _list_own_requirements() -> list[str]:
    """Return the dependencies of nemo-gym, and what every environment gets, in the versions of this process."""
    found = running_head_server_deps()
    for text in importlib.metadata.requires("nemo-gym") or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                if requirement.extras:
                    extras = f"[{','.join(sorted(requirement.extras))}]"
                else:
                    extras = ""
                found.append(f"{requirement.name}{extras}=={importlib.metadata.version(requirement.name)}")
    return found


# --- one replica ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReplicaPlace:
    """Where a replica runs at the moment."""

    replica_id: str
    host: str
    port: int
    pid: int
    node: str
    """The address of its node in the cluster."""


@dataclass(frozen=True)
class ReplicaSpec:
    """What to place."""

    server: str
    number: int
    count: int
    options: RayPlacementConfig
    task: Mapping[str, Any]
    """What `nemo_gym._servers.ray.replica_host` is told; holds secrets."""
    environment: Mapping[str, str]
    code: NodeCode
    restart_timeout_s: float
    """How long a replica that was lost may take to come back, if no other serves meanwhile."""
    others_serve: Callable[[], bool]
    """Tells whether any replica of the server runs."""
    on_change: Callable[["ReplicaSpec", ReplicaPlace | None], None]
    """Hears where the replica runs, and when it does not any more."""
    notice: Callable[[str], None]

    @property
    def name(self) -> str:
        """Its name for people and in logs."""
        if self.count == 1:
            return self.server
        return f"{self.server}.replica{self.number}"

    async def start(self, on_line: Callable[[str], None]) -> "RayReplica":
        """Ask Ray to place it."""
        return RayReplica(self, on_line)

    def describe_wishes(self) -> str:
        """Return in words what a node must have."""
        names = ("num_cpus", "num_gpus", "resources", "node_labels")
        asked = [f"{name}: {value}" for name in names if (value := getattr(self.options, name))]
        return ", ".join(asked) or "nothing in particular"

    def actor_options(self) -> dict[str, Any]:
        """Return the options of the actor."""
        given = self.options
        return {
            "num_cpus": given.num_cpus,
            "num_gpus": given.num_gpus,
            "resources": given.resources or None,
            "max_restarts": given.max_restarts,
            "max_concurrency": _METHODS_AT_ONCE,
            "scheduling_strategy": "SPREAD",
            # `ray list actors` shows it.
            "name": f"nemo-gym {self.name} {secrets.token_hex(4)}",
            **({"label_selector": given.node_labels} if given.node_labels else {}),
        }


class _TooLate(Exception):
    """A replica has not come back in time."""


class RayReplica:
    """A replica, in whichever of its lives."""

    def __init__(self, spec: ReplicaSpec, on_line: Callable[[str], None]) -> None:
        import ray

        self.spec = spec
        self.place: ReplicaPlace | None = None
        """Where it runs; None while it does not."""
        self._on_line = on_line
        self._lines: deque[str] = deque(maxlen=SHOWN_LINES)
        self._was_ready = asyncio.Event()
        self._lost_at: float | None = None
        self._death: asyncio.Future[ServerDied] = asyncio.get_running_loop().create_future()
        pickler: Any = ray.cloudpickle  # untyped
        pickler.register_pickle_by_value(ray_actor)
        make: Any = ray.remote(ray_actor.ReplicaActor)
        self._actor: Any = make.options(**spec.actor_options()).remote()
        self._following = asyncio.create_task(self._follow())

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def pid(self) -> int:
        return self.place.pid if self.place is not None else 0

    async def ready(self) -> None:
        """Return when the server listens for the first time. Waits forever if it never does; use `died` as well."""
        await self._was_ready.wait()

    async def wait_for_death(self) -> ServerDied:
        """Wait until it has ended for good and say how."""
        return await asyncio.shield(self._death)

    async def stop(self) -> None:
        """End the server and its actor."""
        import ray

        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        with contextlib.suppress(Exception):  # its node may be gone
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await self._actor.stop.remote()
        with contextlib.suppress(Exception):
            ray.kill(self._actor, no_restart=True)

    async def _follow(self) -> None:
        """Follow the replica through its lives, until it has ended for good."""
        import ray.exceptions

        try:
            while True:
                try:
                    reason = await self._live()
                    if not self._was_ready.is_set():
                        return self._end(reason)
                    with contextlib.suppress(ray.exceptions.RayActorError):
                        await self._actor.leave.remote()
                except ray.exceptions.ActorDiedError as error:
                    how = "could not be placed"
                    if self._was_ready.is_set():
                        how = "was lost for good"
                    return self._end(f"{how}: {_describe_loss(error)}")
                except ray.exceptions.RayActorError as error:
                    reason = f"was lost: {_describe_loss(error)}"
                except _TooLate:
                    return self._end(f"was lost and did not come back within {self.spec.restart_timeout_s:g} s")
                if self.place is not None:
                    self._lost_at = time.monotonic()
                    self.spec.notice(f"server {self.spec.name!r} {reason}\nRay starts it again")
                    self._move(None)
                await asyncio.sleep(_ASK_AGAIN_S)
        except Exception as error:  # Ray raises what it likes, and the run must hear of it
            self._end(f"cannot be followed on the Ray cluster: {KNOWN_SECRETS.mask(repr(error))}")

    async def _live(self) -> str:
        """Start the server and follow it; return how it ended."""
        spec = self.spec
        order = {
            "replica_id": new_replica_id(spec.number, secrets.token_hex(4)),
            "task": spec.task,
            "environment": dict(spec.environment),
            "code": spec.code.description,
            "bundle": spec.code.bundle,
            "uv": spec.code.uv,
        }
        started = await self._wait_for_node(asyncio.ensure_future(self._actor.start.remote(order)))
        version = 0
        seen_lines = 0
        while True:
            self._check_lateness()
            report = await self._actor.report.remote(version, seen_lines, _REPORT_WAIT_S)
            version = report["version"]
            seen_lines = report["seen_lines"]
            facts = report["facts"]
            for line in report["lines"]:
                self._tell(line)
            if "ended" in facts:
                return KNOWN_SECRETS.mask(str(facts["ended"]))
            if "port" in facts and self.place is None:
                where = facts["host"], facts["port"], facts["pid"], started["node"]
                self._move(ReplicaPlace(started["replica_id"], *where))
                self._was_ready.set()

    async def _wait_for_node(self, starting: "asyncio.Future[dict[str, Any]]") -> dict[str, Any]:
        """Return what the actor says once Ray has found a node for it."""
        has_told = False
        while not starting.done():
            self._check_lateness()
            await asyncio.wait({starting}, timeout=_PLACED_WITHIN_S)
            if not starting.done() and not has_told:
                wishes = self.spec.describe_wishes()
                self._tell(f"Ray has not found a node for it yet, which has to have {wishes}")
                has_told = True
        return starting.result()

    def _check_lateness(self) -> None:
        """Raise if the replica has been gone for too long and nobody else serves in its place."""
        if self.place is not None or self._lost_at is None or self.spec.others_serve():
            return
        if time.monotonic() - self._lost_at > self.spec.restart_timeout_s:
            raise _TooLate

    def _tell(self, line: str) -> None:
        line = KNOWN_SECRETS.mask(line)
        self._lines.append(line)
        self._on_line(line)

    def _move(self, place: ReplicaPlace | None) -> None:
        self.place = place
        self.spec.on_change(self.spec, place)

    def _end(self, how: str) -> None:
        self._move(None)
        if not self._death.done():
            self._death.set_result(ServerDied(self.spec.name, how, tuple(self._lines)))


def _describe_loss(error: Exception) -> str:
    """Return the first line that says something of what Ray tells."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines:
        return KNOWN_SECRETS.mask(lines[0])
    return type(error).__name__
