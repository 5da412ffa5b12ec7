# SPDX-License-Identifier: Apache-2.0
"""Where a server spends its time: a function profile as text, callgrind file, call graph and picture.

Measures CPU time with yappi, which is an extra. yappi measures a whole process: servers that share one see each other's
functions, so give a server a process of its own or name its folder in `required_str`.
"""

import contextlib
import importlib.metadata
import logging
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from nemo_gym.errors import GymError

if TYPE_CHECKING:
    from fastapi import FastAPI

logger = logging.getLogger(__name__)

# Calls that take a smaller share of all CPU time are left out of the call graph, which is unreadable otherwise.
_GRAPH_MIN_SHARE = 0.005
_PNG_TIMEOUT_S = 60


class Profiler(BaseModel):
    """Profiles this process from `start` to `stop`, into `<base_profile_dir>/<name>.{log,callgrind,dot,png}`."""

    name: str
    base_profile_dir: Path
    required_str: str | tuple[str, ...] | None = None
    """Show only functions whose `file:line name` contains this, or one of these, in the log and the graph."""

    # yappi has one switch for the whole process, so it is on as long as anyone needs it.
    _running: ClassVar[set[int]] = set()

    def start(self) -> None:
        """Begin measuring."""
        yappi = import_yappi()
        if not Profiler._running:
            yappi.set_clock_type("cpu")
            yappi.start()
        Profiler._running.add(id(self))
        logger.info("profiling %r", self.name)

    def stop(self) -> None:
        """Write what was measured; the last profiler of the process also ends measuring."""
        self.dump()
        Profiler._running.discard(id(self))
        if not Profiler._running:
            yappi = import_yappi()
            yappi.stop()
            yappi.clear_stats()
        logger.info("profile of %r is in %s", self.name, self.base_profile_dir)

    def dump(self) -> Path:
        """Write what was measured so far, over an earlier dump; returns the path of the log."""
        stats = import_yappi().get_func_stats()
        self.base_profile_dir.mkdir(parents=True, exist_ok=True)
        stats.save(str(self._path("callgrind")), type="CALLGRIND")
        wanted = (self.required_str,) if isinstance(self.required_str, str) else self.required_str or ("",)
        shown = [stat for stat in stats if any(part in stat.full_name for part in wanted)]
        self._path("log").write_text(_table(shown))
        self._path("dot").write_text(_call_graph(shown))
        self._draw()
        return self._path("log")

    def attach(self, app: "FastAPI") -> None:
        """Measure while `app` serves; `GET /stats` dumps and answers with the log."""
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
    """Return what an environment needs so that its servers can be profiled; GymError if it is missing here."""
    import_yappi()
    return [f"yappi=={importlib.metadata.version('yappi')}"]


def describe_profiles(folder: Path, names: Sequence[str]) -> str:
    """Say where the profiles of the servers `names` lie."""
    lines = [f"profiles in {folder}:"]
    for name in names:
        logs = sorted(path.name for path in (*folder.glob(f"{name}.log"), *folder.glob(f"{name}.worker*.log")))
        lines.append(f"  {name}: {', '.join(logs) or 'none, it ended too early to write one'}")
    return "\n".join(lines)


def import_yappi() -> Any:
    """Import yappi, or say which extra has it."""
    try:
        import yappi
    except ImportError as error:
        raise GymError(
            f"profiling needs yappi, which is not installed ({error}).\nhint: pip install 'nemo-gym[profiling]'"
        ) from error
    return yappi


def _table(stats: list[Any]) -> str:
    """One line per function, the most expensive first."""
    rows = [
        (stat.full_name, _calls(stat), _seconds(stat.tsub), _seconds(stat.ttot), _seconds(stat.tavg))
        for stat in sorted(stats, key=lambda stat: stat.ttot, reverse=True)
    ]
    width = max((len(row[0]) for row in rows), default=0) + 2
    lines = [("name", "ncall", "tsub", "ttot", "tavg"), *rows]
    return "".join(
        f"{name:<{width}}{calls:<12}{tsub:<10}{ttot:<10}{tavg:<10}\n" for name, calls, tsub, ttot, tavg in lines
    )


def _calls(stat: Any) -> str:
    # A recursive function is shown as "all calls/calls from outside".
    return str(stat.ncall) if stat.ncall == stat.nactualcall else f"{stat.ncall}/{stat.nactualcall}"


def _seconds(value: float) -> str:
    return f"{value:.6f}"[:8]


def _call_graph(stats: list[Any]) -> str:
    """Who calls whom, for the functions that matter, in the language of graphviz."""
    total = sum(stat.tsub for stat in stats) or 1.0
    nodes = {stat.index: stat for stat in stats if stat.ttot / total >= _GRAPH_MIN_SHARE}
    lines = ["digraph profile {", '  node [shape=box, fontname="monospace"];']
    for index, stat in nodes.items():
        label = f"{stat.full_name}\\n{stat.ttot / total:.1%} of CPU, {_calls(stat)} calls"
        lines.append(f'  f{index} [label="{_quoted(label)}"];')
    for index, stat in nodes.items():
        for child in stat.children:
            if child.index in nodes:
                lines.append(f'  f{index} -> f{child.index} [label="{child.ncall}"];')
    return "\n".join([*lines, "}\n"])


def _quoted(label: str) -> str:
    return label.replace('"', '\\"')
