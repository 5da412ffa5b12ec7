# SPDX-License-Identifier: Apache-2.0
import gc
import itertools
import re
from pathlib import Path

import pytest

_NUMBERS = itertools.count()
_full_collections = list[dict[str, int]]()
_NAME_LENGTH = 24  # the path of a socket in the folder has to be short


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings are errors in our own tests; suites of servers may be other people's, with other habits."""
    for item in items:
        if item.path.is_relative_to(item.config.rootpath / "tests"):
            # A library that is compiled for the first time may warn of its own syntax, in whichever test that happens.
            item.add_marker(pytest.mark.filterwarnings("error", "ignore::SyntaxWarning"), append=False)


def pytest_collection_finish() -> None:
    """Let no collection of garbage look at modules and tests, which stay to the end: each look takes up to 0.5 s."""
    gc.collect()
    gc.freeze()
    gc.callbacks.append(_note_full_collection)


def _note_full_collection(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        _full_collections.append(info)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Freeze again what a run has thawed in this process: it has collected all garbage before."""
    if _full_collections:
        _full_collections.clear()
        gc.collect(1)
        gc.freeze()


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
