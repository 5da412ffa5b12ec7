# SPDX-License-Identifier: Apache-2.0
"""Profile where a server spends its time: as text, a callgrind file, a call graph and a picture.

yappi measures CPU time and gprof2dot draws; both come with an extra. yappi measures a whole process, so a server's
profile shows all servers in its process: give it its own process, or name its folder in `required_str`.
"""

import contextlib
import importlib.metadata
import logging
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, field_validator

from nemo_gym.errors import GymError

if TYPE_CHECKING:
    from fastapi import FastAPI

logger = logging.getLogger(__name__)

# Calls with a smaller share of the CPU time are left out of the call graph, to keep it readable.
_GRAPH_MIN_SHARE = 0.005
_PNG_TIMEOUT_S = 60


class ProfilingToolMissing(GymError, ModuleNotFoundError):
    """A library that profiling needs is not installed."""


class Profiler(BaseModel):
    """Profile this process from `start` to `stop`, into `<base_profile_dir>/<name>.{log,callgrind,dot,png}`."""

    name: str
    base_profile_dir: Path
    required_str: str | tuple[str, ...] | None = None
    """Show only functions whose `file:line name` contains this text, or one of these texts."""

    # yappi has one switch for the whole process, so it stays on while any profiler runs.
    _running: ClassVar[set[int]] = set()

    @field_validator("name")
    @classmethod
    def _refuse_spaces(cls, name: str) -> str:
        if " " in name:
            raise ValueError(f"Spaces are not allowed in the name of a profiler, which names its files: {name!r}")
        return name

    def start(self) -> None:
        """Start measuring."""
        yappi, _ = import_tools()
        if not Profiler._running:
            yappi.set_clock_type("cpu")
            yappi.start()
        Profiler._running.add(id(self))
        logger.info("profiling %r", self.name)

    def stop(self) -> None:
        """Write the profile; the last profiler of the process also stops measuring."""
        self.dump()
        Profiler._running.discard(id(self))
        if not Profiler._running:
            yappi, _ = import_tools()
            yappi.stop()
            yappi.clear_stats()
        logger.info("wrote the profile of %r to %s", self.name, self.base_profile_dir)

    def dump(self) -> Path:
        """Write the profile so far, replacing an earlier one, and return the path of the log."""
        yappi, gprof2dot = import_tools()
        wanted = self.required_str or ("",)
        if isinstance(wanted, str):
            wanted = (wanted,)
        stats = yappi.get_func_stats(filter_callback=lambda stat: any(part in stat.full_name for part in wanted))
        self.base_profile_dir.mkdir(parents=True, exist_ok=True)
        self._path("log").write_text(_format_table(list(stats)))
        stats.save(str(self._path("callgrind")), type="CALLGRIND")
        with self._path("callgrind").open() as saved, self._path("dot").open("w") as drawn:
            graph = gprof2dot.CallgrindParser(saved).parse()
            graph.prune(_GRAPH_MIN_SHARE, _GRAPH_MIN_SHARE, [], False)
            gprof2dot.DotWriter(drawn).graph(graph, gprof2dot.TEMPERATURE_COLORMAP)
        self._draw()
        return self._path("log")

    def attach(self, app: "FastAPI") -> None:
        """Profile while `app` serves; `GET /stats` writes the profile and returns the log."""
        from fastapi.responses import PlainTextResponse

        def stats() -> PlainTextResponse:
            return PlainTextResponse(self.dump().read_text())

        app.get("/stats")(stats)
        inner = app.router.lifespan_context

        @contextlib.asynccontextmanager
        async def profiled(running_app: Any) -> AsyncIterator[Any]:
            self.start()
            try:
                async with inner(running_app) as state:
                    yield state
            finally:
                self.stop()

        app.router.lifespan_context = profiled

    def _path(self, suffix: str) -> Path:
        return self.base_profile_dir / f"{self.name}.{suffix}"

    def _draw(self) -> None:
        graphviz = shutil.which("dot")
        if graphviz is None:
            return
        command = [graphviz, "-Tpng", str(self._path("dot")), "-o", str(self._path("png"))]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_PNG_TIMEOUT_S)
        except (subprocess.SubprocessError, OSError) as error:
            logger.warning("the call graph of %r could not be drawn: %s", self.name, error)


def profiler_requirements() -> list[str]:
    """Return what an environment needs to profile its servers; raise GymError if it is missing here."""
    return [f"{tool.__name__}=={importlib.metadata.version(tool.__name__)}" for tool in import_tools()]


def describe_profiles(folder: Path, names: Sequence[str]) -> str:
    """Return a text that says where the profiles of the servers `names` are."""
    lines = [f"profiles in {folder}:"]
    for name in names:
        logs = sorted(path.name for path in (*folder.glob(f"{name}.log"), *folder.glob(f"{name}.worker*.log")))
        lines.append(f"  {name}: {', '.join(logs) or 'none, it ended too early to write one'}")
    return "\n".join(lines)


def import_tools() -> tuple[ModuleType, ModuleType]:
    """Import yappi and gprof2dot; if they are missing, say which extra provides them."""
    try:
        import gprof2dot
        import yappi
    except ImportError as error:
        raise ProfilingToolMissing(
            f"profiling needs yappi and gprof2dot, which are not both installed ({error}).\n"
            "hint: Install nemo-gym[dev], or just these two: pip install 'nemo-gym[profiling]'"
        ) from error
    return yappi, gprof2dot


def _format_table(stats: list[Any]) -> str:
    """Return one line per function, the most expensive first."""
    rows = [("name", "ncall", "tsub", "ttot", "tavg")]
    for stat in sorted(stats, key=lambda stat: stat.ttot, reverse=True):
        # A recursive function is shown as "all calls/calls from outside".
        calls = str(stat.ncall)
        if stat.ncall != stat.nactualcall:
            calls += f"/{stat.nactualcall}"
        tsub, ttot, tavg = (f"{seconds:.6f}"[:8] for seconds in (stat.tsub, stat.ttot, stat.tavg))
        rows.append((stat.full_name, calls, tsub, ttot, tavg))
    width = max(len(row[0]) for row in rows) + 2
    return "".join(
        f"{name:<{width}}{calls:<12}{tsub:<10}{ttot:<10}{tavg:<10}\n" for name, calls, tsub, ttot, tavg in rows
    )
