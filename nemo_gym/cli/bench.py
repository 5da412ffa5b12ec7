# SPDX-License-Identifier: Apache-2.0
"""`gym bench`: measure this installation on this machine. `nemo_gym._bench` says what is measured, and how."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PositiveInt

from nemo_gym._config.command_flags import Flag
from nemo_gym._config.overrides import parse_overrides
from nemo_gym._util.atomic_files import write_atomically
from nemo_gym._util.nearest import suggest
from nemo_gym.cli import render
from nemo_gym.cli.flags import UsageError
from nemo_gym.cli.settings import OneOrMany, validate_settings
from nemo_gym.config_types import BaseNeMoGymCLIConfig

if TYPE_CHECKING:  # loads the measured code, and other commands import this module for its settings
    from nemo_gym._bench.bench_file import Bench
    from nemo_gym._bench.parts import PartResult

_RESULTS = Path("results") / "bench"


class BenchConfig(BaseNeMoGymCLIConfig):
    """Measure this installation: speed, latency, memory and startup, each against a unit from the same run."""

    parts: OneOrMany = Field(default_factory=list, description="Which parts to measure; by default all but slow ones.")
    json_format: Annotated[bool, Flag()] = Field(
        default=False, alias="json", description="Print JSON instead of a table."
    )
    output: Annotated[str | None, Flag(short="-o")] = Field(
        default=None, description="The JSON file to write; by default one in results/bench."
    )
    picture: Annotated[str | None, Flag()] = Field(
        default=None, description="The SVG file of growth curves; by default next to the JSON."
    )
    compare: Annotated[str | None, Flag()] = Field(
        default=None, description="JSON of an earlier run: report what changed beyond the spread."
    )
    repeat: Annotated[PositiveInt, Flag()] = Field(
        default=1, description="Run every part this many times; report medians and spread."
    )
    strict: Annotated[bool, Flag()] = Field(
        default=False, description="Exit with 1 if a bound is exceeded, or a figure got worse."
    )


def bench(overrides: list[str]) -> int:
    """Measure, print, write files and compare; return 1 if a part failed."""
    config = validate_settings(BenchConfig, parse_overrides(overrides).values)
    from nemo_gym._bench import bench_file, compare, report
    from nemo_gym._bench.parts import BY_DEFAULT, run_parts

    if config.parts == ["list"]:
        render.data(_list_parts())
        return 0
    names = config.parts or list(BY_DEFAULT)
    _require_known(names)
    earlier = None
    if config.compare is not None:  # read before minutes are spent
        earlier = bench_file.read(Path(config.compare))
    results: list[PartResult] = []
    was_stopped = False
    try:
        with _progress(len(names)) as (on_start, on_end):
            for result in run_parts(names, config.repeat, on_start):
                results.append(result)
                on_end(result)
    except KeyboardInterrupt:
        was_stopped = True  # what has been measured is worth keeping
    found = bench_file.describe_run(results, config.repeat)
    if config.json_format:
        render.data(bench_file.as_json(found).decode())
    elif found.rows:
        render.data(report.as_table(found.rows))
    _write_files(found, config)
    got_worse = False
    if earlier is not None:
        changes = compare.compare(earlier, found)
        got_worse = any(change.verdict == "worse" for change in changes)
        _show_changes(changes, compare.describe_difference(earlier, found), in_notes=config.json_format)
    if was_stopped:
        return 130
    return int(bool(found.failed_parts) or (config.strict and (got_worse or report.is_over(found.rows))))


def _list_parts() -> str:
    from nemo_gym._bench.parts import BY_DEFAULT, ON_REQUEST

    groups = (("parts:", BY_DEFAULT), ("only when named:", ON_REQUEST))
    return "\n".join(
        line for title, parts in groups for line in (title, *(f"  {name:14} {about}" for name, about in parts.items()))
    )


def _require_known(names: Sequence[str]) -> None:
    from nemo_gym._bench.parts import ALL

    for name in names:
        if name not in ALL:
            raise UsageError(
                f"there is no part {name!r}.{suggest(name, ALL)}\n{_list_parts()}\n"
                "hint: name parts as in `gym bench cli startup`, or none for all but the last ones"
            )


def _write_files(found: "Bench", config: BenchConfig) -> None:
    from nemo_gym._bench import bench_file
    from nemo_gym._bench.picture import draw_picture

    if not found.rows:
        return
    path = Path(config.output or _RESULTS / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.json"))
    bench_file.write(path, found)
    render.note(f"Wrote {path}")
    cpu = found.machine["cpu"]
    cores = found.machine["cores"]
    drawn = draw_picture(found.rows, f"gym bench, {found.date}, {cpu}, {cores} cores")
    if drawn is not None:
        picture = Path(config.picture or path.with_suffix(".svg"))
        write_atomically(picture, drawn)
        render.note(f"Wrote {picture}")
    elif config.picture:
        render.note(
            f"No picture: none of {', '.join(found.parts)} is measured at several sizes.\n"
            "hint: `gym bench in_flight` is"
        )


def _show_changes(changes: "Sequence[Any]", differences: Sequence[str], *, in_notes: bool) -> None:
    from nemo_gym._bench.compare import as_table

    lines = as_table(changes)
    same = sum(change.verdict == "same" for change in changes)
    if len(lines) > 1 and not in_notes:
        render.data("")
        render.table(lines, title="Beyond the spread of both runs:")
    elif len(lines) > 1:
        render.note("\n".join(" ".join(cells) for cells in lines[1:]))
    render.note("\n".join([*differences, f"{same} of {len(changes)} figures stayed within their spread"]))


@contextmanager
def _progress(total: int) -> "Iterator[tuple[Callable[[str], None], Callable[[PartResult], None]]]":
    """Show which part is being measured: a progress bar on a terminal, one line per part elsewhere."""
    from nemo_gym._bench.parts import ALL

    number = 0

    def tell(result: "PartResult") -> str:
        if result.failure:
            return f"{result.name}: failed: {result.failure}"
        return f"{result.name}: left out: {result.left_out}" if result.left_out else ""

    if not sys.stderr.isatty():

        def announce(name: str) -> None:
            nonlocal number
            number += 1
            render.note(f"{name} ({number} of {total}): {ALL[name]}")

        yield announce, lambda result: render.note(tell(result) or f"  {result.wall_s:.1f} s")
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("", total=total)

        def end(result: "PartResult") -> None:
            display.advance(task)
            if told := tell(result):
                display.console.print(told, markup=False, highlight=False)

        yield lambda name: display.update(task, description=f"{name}: {ALL[name]}"), end
