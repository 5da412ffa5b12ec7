# SPDX-License-Identifier: Apache-2.0
import gc
import itertools
import os
import re
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support.leftover_processes import watch_leftovers

# How long an example takes, or takes to draw, says more about the machine than about the code.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")

# A shell starts `pytest &` with Ctrl-C ignored, and `nohup` with hangups, and so would be all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

_NUMBERS = itertools.count()
_FREEZE, _UNFREEZE = gc.freeze, gc.unfreeze
_others_ran_before = False
_NAME_LENGTH = 24  # the path of a socket in the folder has to be short


def pytest_configure(config: pytest.Config) -> None:
    """Let nothing that the tests start outlive them."""
    watch_leftovers()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings are errors in our own tests; suites of servers may be other people's, with other habits."""
    for item in items:
        if item.path.is_relative_to(item.config.rootpath / "tests"):
            # A library that is compiled for the first time may warn of its own syntax, in whichever test that happens.
            item.add_marker(pytest.mark.filterwarnings("error", "ignore::SyntaxWarning"), append=False)


def pytest_collection_finish() -> None:
    """Let no collection of garbage look at modules and tests, which stay to the end: each look takes up to 0.5 s.

    A run collects all garbage when it begins, and thaws what is frozen when it ends: not here.
    """
    gc.collect()
    gc.freeze()
    gc.freeze = gc.unfreeze = lambda: None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what each client was able to do: `tests/clients`."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    rows = [row for report in reports for name, row in report.user_properties if name == "client"]
    if rows:
        terminalreporter.section("clients")
        terminalreporter.write_line("\n".join(sorted(rows)))


def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Collect what a suite of a server left open before our next test, in which a warning of it would be an error."""
    global _others_ran_before
    is_ours = item.path.is_relative_to(Path(__file__).parent)
    if is_ours and _others_ran_before:
        with warnings.catch_warnings(action="ignore"):
            gc.collect()
    _others_ran_before = not is_ours


@pytest.fixture
def freezing_gc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `gc.freeze` and `gc.unfreeze` do what they do outside of the tests."""
    monkeypatch.setattr(gc, "freeze", _FREEZE)
    monkeypatch.setattr(gc, "unfreeze", _UNFREEZE)
    yield
    gc.collect()
    _FREEZE()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder for one test.

    To find a free name, the fixture of pytest reads the names of all folders that earlier tests were given; with some
    thousand tests, all of which get one, that takes longer than most of them do.
    """
    name = re.sub(r"\W", "_", request.node.name)[:_NAME_LENGTH]
    folder = tmp_path_factory.getbasetemp() / "t" / f"{name}{next(_NUMBERS)}"
    folder.mkdir(mode=0o700, parents=True)
    return folder


@pytest.fixture(autouse=True)
def run_tokens_stay_in_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMO_GYM_RUN_TOKEN_DIR", str(tmp_path / "run-tokens"))


@pytest.fixture(autouse=True)
def variables_stay_in_the_test() -> Iterator[None]:
    """Take back what the tested code sets for the processes that it starts, such as the folders of `--search-dir`.

    `monkeypatch.delenv` forgets a variable that was not there, so it does not do this.
    """
    before = {**os.environ}
    yield
    for name in os.environ.keys() | before.keys():
        if name == "PYTEST_CURRENT_TEST":  # pytest's own
            continue
        if name not in before:
            del os.environ[name]
        elif os.environ.get(name) != before[name]:
            os.environ[name] = before[name]
