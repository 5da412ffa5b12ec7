# SPDX-License-Identifier: Apache-2.0
"""Commands as the documents show them, in this process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.seeds.serving import EXAMPLES, MODEL, SERVER, Project, ng_run
from tests.support.in_process import Said, ports_given_back, said_by

Run = Callable[..., Said]


@pytest.fixture(autouse=True)
def ports_are_given_back() -> Iterator[None]:
    with ports_given_back():
        yield


@pytest.fixture
def run(monkeypatch, capsys) -> Run:
    """Run a command in a folder, as its script would."""

    def run(folder: Path, alias: str, *words: str) -> Said:
        monkeypatch.chdir(folder)
        return said_by(monkeypatch, capsys, alias, *words)

    return run


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Project]:
    """Servers started as the legacy command reference starts them; a file may start others."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "weather_query.jsonl").write_text(EXAMPLES.read_text())
    with ng_run(folder, f"+config_paths=[{SERVER},{MODEL}]") as project:
        yield project


@pytest.fixture
def tell(running: Project, run: Run, monkeypatch) -> Run:
    """Run a command in the folder of the running servers."""
    monkeypatch.setenv("NEMO_GYM_RUN_TOKEN_DIR", str(running.tokens))
    return lambda *words: run(running.folder, *words)
