# SPDX-License-Identifier: Apache-2.0
"""The file of a `gym bench` run: figures, and on which machine, with which versions and when they were measured."""

import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import orjson
import psutil

from nemo_gym import __version__
from nemo_gym._bench.parts import PartResult
from nemo_gym._bench.report import Row, as_object, from_object
from nemo_gym._util.atomic_files import write_atomically
from nemo_gym.errors import GymError

SCHEMA = 2
_LIBRARIES = ("aiohttp", "fastapi", "orjson", "pydantic", "uvicorn", "uvloop")


class BenchFileError(GymError):
    """A file that is no result of `gym bench`."""


@dataclass(frozen=True)
class Bench:
    """A run of `gym bench`."""

    rows: tuple[Row, ...]
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of each part how long it took, and why it was left out or how it failed."""
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    date: str = ""
    repeat: int = 1

    @property
    def failed_parts(self) -> list[str]:
        return [name for name, part in self.parts.items() if part["failure"]]

    def find(self, name: str, unit: str) -> Row | None:
        """Return the row of this name and unit."""
        return next((row for row in self.rows if (row.name, row.unit) == (name, unit)), None)


def describe_run(results: Iterable[PartResult], repeat: int) -> Bench:
    """Return the results of parts together with where and when they were measured."""
    listed = list(results)
    return Bench(
        tuple(row for result in listed for row in result.rows),
        {
            result.name: {"wall_s": result.wall_s, "left_out": result.left_out, "failure": result.failure}
            for result in listed
        },
        describe_machine(),
        {
            "nemo_gym": __version__,
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in _LIBRARIES},
        },
        datetime.now(UTC).isoformat(timespec="seconds"),
        repeat,
    )


def describe_machine() -> dict[str, Any]:
    """Return what of this machine decides how fast it is, and how busy others keep it."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_1m": round(os.getloadavg()[0], 2),
    }


def as_json(bench: Bench) -> bytes:
    """Write a run as JSON."""
    content = {"schema": SCHEMA, **asdict(bench), "rows": [as_object(row) for row in bench.rows]}
    return orjson.dumps(content, option=orjson.OPT_INDENT_2)


def write(path: Path, bench: Bench) -> None:
    """Write the file of a run."""
    write_atomically(path, as_json(bench) + b"\n")


def read(path: Path) -> Bench:
    """Read the file of a run; BenchFileError if it is none."""
    hint = "hint: name a file that `gym bench` wrote, or what `gym bench --json` printed"
    try:
        found = orjson.loads(path.read_bytes())
        schema = found["schema"]
        rows = tuple(map(from_object, found["rows"]))
    except FileNotFoundError:
        raise BenchFileError(f"there is no file {str(path)!r}.\nlooked in: {path.absolute().parent}\n{hint}") from None
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise BenchFileError(
            f"{str(path)!r} is no result of `gym bench`.\nit says: {type(error).__name__}: {error}\n{hint}"
        ) from error
    if schema != SCHEMA:
        raise BenchFileError(
            f"{str(path)!r} has schema {schema}, and this version reads {SCHEMA}.\n"
            "hint: measure again with this version, or compare with the version that wrote it"
        )
    return Bench(rows, found["parts"], found["machine"], found["versions"], found["date"], found["repeat"])


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
