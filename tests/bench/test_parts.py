# SPDX-License-Identifier: Apache-2.0
import importlib.util
import sys
from types import ModuleType

import pytest

from nemo_gym._bench.parts import ALL, BY_DEFAULT, ON_REQUEST, PartResult, read_result, run_parts, write_result
from nemo_gym._bench.report import LeftOut, Row
from nemo_gym._bench.run_part import run_part


@pytest.fixture
def part(monkeypatch):
    """Put a part `made_up` into the package that does what it is told."""

    def put(run) -> None:
        module = ModuleType("nemo_gym._bench.made_up")
        module.run = run
        monkeypatch.setitem(sys.modules, "nemo_gym._bench.made_up", module)

    return put


def test_every_part_is_a_module_and_stands_in_one_table():
    assert all(importlib.util.find_spec(f"nemo_gym._bench.{name}") for name in ALL)
    assert not BY_DEFAULT.keys() & ON_REQUEST.keys()


def test_the_long_ones_run_only_when_they_are_named():
    assert "scale" not in BY_DEFAULT


def test_a_part_gives_its_rows(part):
    part(lambda: [Row("a", 1, "s")])
    assert run_part("made_up").rows == (Row("a", 1, "s"),)


def test_a_part_that_cannot_be_measured_here_says_why(part):
    def leave_out():
        raise LeftOut("there is no Chromium.\nhint: apt-get install chromium")

    part(leave_out)
    assert "no Chromium" in run_part("made_up").left_out


def test_a_part_that_lacks_a_library_names_it(part):
    part(lambda: importlib.import_module("no_such_library.inner"))
    assert run_part("made_up").left_out == "it needs no_such_library.\nhint: pip install no_such_library"


def test_a_part_that_fails_is_a_failure_and_not_a_gap(part):
    part(lambda: {}["port"])
    assert run_part("made_up").failure == "KeyError: 'port'"


def test_a_result_is_the_same_in_the_process_that_asked_for_it(tmp_path):
    result = PartResult("cli", (Row("a", 1.5, "s", samples=(1.0, 2.0)),), 3.5)
    write_result(tmp_path / "result.json", result)
    assert read_result(tmp_path / "result.json") == result


def test_a_part_whose_process_dies_is_a_failure_and_the_next_one_runs(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    started: list[str] = []
    results = list(run_parts(["cli", "hops"], 2, started.append))
    assert [result.failure for result in results] == ["its process ended with code 1"] * 2
    assert started == ["cli", "hops"]
