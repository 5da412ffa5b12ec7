# SPDX-License-Identifier: Apache-2.0
"""Runs the pytest suites of servers, each in a process of its own, several at once.

What a suite needs to be installed and where it is found is decided by the caller.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Verdict = Literal["passed", "failed", "missing", "unrecognised", "late", "not run"]
NOT_RUN = -256

_BY_CODE: dict[int, Verdict] = {
    0: "passed",
    1: "failed",
    2: "failed",
    5: "missing",
    -signal.SIGKILL: "late",
    NOT_RUN: "not run",
}
_SUMMARY = re.compile(r"^=*\s*((?:\d+ \w+(?:, )?)+ in [\d.]+s.*?|no tests ran in [\d.]+s)\s*=*$", re.MULTILINE)
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_GRACE_S = 5.0


@dataclass(frozen=True)
class Suite:
    """The tests of one server: `name` is `<type>/<implementation>`."""

    name: str
    folder: Path
    python: Path
    environment: Mapping[str, str]
    arguments: Sequence[str] = ()
    timeout_s: float = 3600.0

    @property
    def command(self) -> list[str]:
        # A test may import its server before nemo_gym, whose import makes servers importable.
        return [str(self.python), "-m", "pytest", "-p", "nemo_gym", *self.arguments]


@dataclass(frozen=True)
class SuiteResult:
    """How a suite ended; `code` is pytest's own, -9 where it had to be killed, NOT_RUN where it could not be run."""

    name: str
    code: int
    seconds: float
    output: str = ""

    @property
    def verdict(self) -> Verdict:
        return _BY_CODE.get(self.code, "unrecognised")

    @property
    def summary(self) -> str:
        """pytest's last line: `4 passed in 0.31s`."""
        found = _SUMMARY.findall(_COLORS.sub("", self.output))
        return str(found[-1]) if found else ""


async def run_suite(suite: Suite, *, capture: bool = True) -> SuiteResult:
    """Run one suite to its end or to its deadline; without `capture` it prints where this process prints."""
    started = time.monotonic()
    pipe = asyncio.subprocess.PIPE if capture else None
    process = await asyncio.create_subprocess_exec(
        *suite.command,
        cwd=suite.folder,
        env=dict(suite.environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=asyncio.subprocess.STDOUT if capture else None,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(suite.timeout_s):
            output, _ = await process.communicate()
    except TimeoutError:
        await _end(process)
        text = f"the tests were stopped after {suite.timeout_s:g} s"
        return SuiteResult(suite.name, -signal.SIGKILL, time.monotonic() - started, text)
    except BaseException:
        await _end(process)
        raise
    text = output.decode(errors="replace") if output else ""
    return SuiteResult(suite.name, process.returncode or 0, time.monotonic() - started, text)


async def run_suites(suites: Sequence[Suite | SuiteResult], parallel: int) -> AsyncIterator[SuiteResult]:
    """Run `suites`, `parallel` of them at a time; their results in the order of `suites`.

    One that could not be prepared comes as its result already.
    """
    slots = asyncio.Semaphore(max(1, parallel))

    async def run(suite: Suite | SuiteResult) -> SuiteResult:
        if isinstance(suite, SuiteResult):
            return suite
        async with slots:
            return await run_suite(suite)

    tasks = [asyncio.create_task(run(suite)) for suite in suites]
    try:
        for task in tasks:
            yield await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Interrupt the suite and all that it started, and kill what does not listen."""
    for number, patience_s in ((signal.SIGINT, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), patience_s)
            return


# --- example data -----------------------------------------------------------------------------------------------------


EXAMPLE_ROWS = 5


def find_data_problems(folder: Path) -> list[str]:
    """Return what is wrong with the data of the resources server in `folder`, each with the command that fixes it."""
    name = folder.name
    data = folder / "data"
    collate = (
        f"hint: gym dataset collate --resources-server {name} --mode example_validation --output-dir results/{name}"
    )
    collect = (
        f"hint: gym eval run --resources-server {name} --model-type openai_model --split example "
        f"--output {data / 'example_rollouts.jsonl'}"
    )
    rows = f"hint: put {EXAMPLE_ROWS} rows into {data / 'example.jsonl'}"
    conflicts = ", ".join(sorted(path.name for path in data.glob("*conflict*")))
    disagreement = f"{data} holds metrics that disagree with their rows: {conflicts}" if conflicts else None
    found = [
        (_check_row_count(data / "example.jsonl"), rows),
        (_check_metrics(data / "example_metrics.json"), collate),
        (disagreement, f"{collate}, after deleting the files that are out of date"),
        (_check_row_count(data / "example_rollouts.jsonl"), collect),
    ]
    return [f"{problem}\n{hint}" for problem, hint in found if problem]


def _check_row_count(path: Path) -> str | None:
    try:
        count = sum(1 for line in path.read_bytes().splitlines() if line.strip())
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return None if count == EXAMPLE_ROWS else f"{path} has {count} rows, not {EXAMPLE_ROWS}"


def _check_metrics(path: Path) -> str | None:
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    except ValueError as error:
        return f"{path} is not JSON: {error}"
    count = metrics.get("Number of examples") if isinstance(metrics, dict) else None
    return None if count == EXAMPLE_ROWS else f"{path} says {count} examples, not {EXAMPLE_ROWS}"
