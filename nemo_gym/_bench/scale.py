# SPDX-License-Identifier: Apache-2.0
"""`gym eval run` at its limits: 16,000 rollouts in flight at once, and a run so long that what is held would show.

Takes a quarter of an hour, so it runs only when it is asked for by name. Memory is that of the command and everything
it starts; the endpoint is not part of it.
"""

import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import psutil

from nemo_gym._bench.eval_run import Command, prepared, stats
from nemo_gym._bench.fake_replies import Settings
from nemo_gym._bench.report import Row

_IN_FLIGHT = 16_000
_MEMORY_BOUND_MB = 1500
_LONG_RUN = 200_000
_EARLY = 10_000
_CONCURRENCY = 256
_GROWTH_BOUND = 1.1
_LOOK_EVERY_S = 0.25


def run() -> list[Row]:
    """Many at once, and many in a row."""
    # A rollout of two calls would end before the last one has begun: beginning 16,000 takes longer than four seconds.
    several_turns = Settings(latency_ms=2_000, tool_rounds=9)
    one_long_turn = Settings(latency_ms=120_000, tool_rounds=0)
    return [
        *in_flight("10 calls of 2 s each", several_turns),
        *in_flight("1 call of 120 s", one_long_turn),
        *long_run(),
    ]


def in_flight(name: str, settings: Settings, rollouts: int = _IN_FLIGHT) -> list[Row]:
    """As many rollouts as there are, all at once; RuntimeError unless every one is scored."""
    with prepared(settings) as (command, base_url):
        watched = _run(command, rollouts, concurrency=rollouts)
        manifest = orjson.loads(command.output.with_name(f"{command.output.stem}_run.json").read_bytes())
        open_calls = stats(base_url)["most_open_calls"]
    title = f"{rollouts:,} rollouts, {name}"
    return [
        Row(f"{title}: in flight at once", manifest["most_in_flight"], "rollouts"),
        Row(f"{title}: in flight at once", open_calls, "calls at the endpoint"),
        Row(f"{title}: peak memory", watched.peak_mb, "MB resident", _MEMORY_BOUND_MB),
        Row(f"{title}: CPU", 1e6 * watched.cpu_s / rollouts, "µs a rollout"),
        Row(f"{title}: wall", watched.wall_s, "s"),
    ]


def long_run(rollouts: int = _LONG_RUN, early: int = _EARLY, concurrency: int = _CONCURRENCY) -> list[Row]:
    """Memory at the end of a run, against memory when it was well under way."""
    with prepared(Settings(tool_rounds=0)) as (command, _):
        watched = _run(command, rollouts, concurrency=concurrency)
    title = f"{rollouts:,} rollouts, {concurrency} at once"
    early_mb = watched.memory_mb_at(early)
    late_mb = watched.memory_mb_at(rollouts)
    return [
        Row(f"{title}: memory after {early:,}", early_mb, "MB resident"),
        Row(f"{title}: memory after the last", late_mb, "MB resident"),
        Row(f"{title}: growth", late_mb / early_mb, f"x memory after {early:,}", _GROWTH_BOUND),
        Row(f"{title}: CPU", 1e6 * watched.cpu_s / rollouts, "µs a rollout"),
        Row(f"{title}: wall", watched.wall_s, "s"),
    ]


@dataclass
class _Watched:
    """What was seen of a run."""

    seen: list[tuple[int, float]] = field(default_factory=list)
    """Rollouts recorded so far, and the memory in MB then."""
    cpu_s: float = 0.0
    wall_s: float = 0.0

    @property
    def peak_mb(self) -> float:
        return max(memory_mb for _, memory_mb in self.seen)

    def memory_mb_at(self, recorded: int) -> float:
        """The memory when so many rollouts were recorded, or as soon after as it was looked at."""
        return next(memory_mb for count, memory_mb in self.seen if count >= recorded)


class _Lines:
    """Counts the lines of a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self.count = 0

    def look(self) -> int:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._at)
                while chunk := file.read(1 << 20):
                    self._at += len(chunk)
                    self.count += chunk.count(b"\n")
        return self.count


def _run(command: Command, rollouts: int, *, concurrency: int) -> _Watched:
    tasks = command.write_tasks(rollouts)
    watched = _Watched()
    lines = _Lines(command.output)
    started = time.perf_counter()
    errors_path = command.output.with_name("errors.txt")
    with errors_path.open("wb") as errors:
        arguments = ("--input", tasks, "--concurrency", str(concurrency))
        process = command.start(*arguments, stdout=subprocess.DEVNULL, stderr=errors)
        root = psutil.Process(process.pid)
        while process.poll() is None:
            _look(root, lines, watched)
            time.sleep(_LOOK_EVERY_S)
    watched.wall_s = time.perf_counter() - started
    if process.returncode or lines.look() != rollouts:
        raise RuntimeError(
            f"{lines.count} of {rollouts} rollouts were scored, exit code {process.returncode}:\n"
            f"{errors_path.read_text()[-2000:]}"
        )
    return watched


def _look(root: psutil.Process, lines: _Lines, watched: _Watched) -> None:
    try:
        tree = [root, *root.children(recursive=True)]
        memory_mb = sum(process.memory_info().rss for process in tree) / 2**20
        used = root.cpu_times()
    except psutil.NoSuchProcess:
        return
    if memory_mb:  # a process that has ended and was not waited for has none
        watched.seen.append((lines.look(), memory_mb))
        watched.cpu_s = used.user + used.system
