# SPDX-License-Identifier: Apache-2.0
"""`gym bench` on the command line; what is measured is tested in tests/bench."""

import json
from xml.etree import ElementTree

import pytest

from nemo_gym._bench import bench_file, parts
from nemo_gym._bench.bench_file import describe_run
from nemo_gym._bench.parts import PartResult
from nemo_gym._bench.report import Point, Row

MEMORY = [
    Row("32 in flight: memory", 80, "MB resident", point=Point("memory, MB", "memory", 32, "rollouts in flight")),
    Row("512 in flight: memory", 90, "MB resident", point=Point("memory, MB", "memory", 512, "rollouts in flight")),
]
MEASURED = {
    "cli": PartResult("cli", (Row("gym --help", 0.4, "x the imports", 1.2, samples=(0.39, 0.4, 0.42)),), 1.5),
    "startup": PartResult("startup", (Row("three servers ready", 3.5, "x bare imports", 3.0),), 2.0),
    "in_flight": PartResult("in_flight", tuple(MEMORY), 2.0),
    "viewer": PartResult("viewer", left_out="there is no Chromium.\nhint: apt-get install chromium"),
    "hops": PartResult("hops", failure="OSError: no more ports"),
}


@pytest.fixture
def bench(gym, monkeypatch):
    """Run `gym bench` with parts that have been measured already."""

    def run_parts(names, repeat, on_start):
        for name in names:
            on_start(name)
            yield MEASURED[name]

    monkeypatch.setattr(parts, "run_parts", run_parts)
    return lambda *words: gym("bench", *words)


def test_a_table_is_printed_and_a_file_with_everything_is_kept(bench, tmp_path):
    said = bench("cli")
    assert said.code == 0
    assert "gym --help  0.4 x the imports  0.39 – 0.42    1.2   0.33  ok" in said.out
    [path] = (tmp_path / "cwd" / "results" / "bench").glob("*.json")
    assert bench_file.read(path).rows == MEASURED["cli"].rows
    assert f"Wrote results/bench/{path.name}" in said.err


def test_progress_is_a_line_for_each_part_where_there_is_no_terminal(bench):
    said = bench("cli", "in_flight")
    assert "cli (1 of 2): short commands" in said.err
    assert "in_flight (2 of 2): memory" in said.err


def test_json_has_schema_machine_versions_date_rounds_and_spread(bench):
    told = json.loads(bench("cli", "--json", "--repeat", "3").out)
    assert (told["schema"], told["repeat"]) == (2, 3)
    assert told.keys() >= {"machine", "versions", "date", "parts"}
    [row] = told["rows"]
    assert (row["rounds"], row["spread"], row["verdict"]) == (3, [0.39, 0.42], "ok")


def test_growth_curves_are_drawn_beside_the_json(bench, tmp_path):
    bench("in_flight", "--output", "run.json")
    assert "memory, MB" in ElementTree.parse(tmp_path / "cwd" / "run.svg").getroot().itertext()


def test_the_picture_goes_where_it_is_wanted(bench, tmp_path):
    bench("in_flight", "--output", "run.json", "--picture", "curves/growth.svg")
    assert (tmp_path / "cwd" / "curves" / "growth.svg").exists()


def test_parts_without_curves_say_why_there_is_no_picture(bench):
    assert "No picture: none of cli is measured at several sizes." in bench("cli", "--picture", "a.svg").err


def test_a_bound_that_is_exceeded_fails_only_a_strict_run(bench):
    assert bench("startup").code == 0
    assert bench("startup", "--strict").code == 1


def test_a_part_that_cannot_be_measured_is_named_and_is_no_failure(bench):
    said = bench("cli", "viewer")
    assert said.code == 0
    assert "viewer: left out: there is no Chromium.\nhint: apt-get install chromium" in said.err


def test_a_part_that_fails_is_named_and_the_others_are_told(bench):
    said = bench("hops", "cli")
    assert said.code == 1
    assert "hops: failed: OSError: no more ports" in said.err
    assert "gym --help" in said.out


def test_an_earlier_run_is_compared_beyond_the_spread(bench, tmp_path):
    faster = PartResult("cli", (Row("gym --help", 0.2, "x the imports", 1.2, samples=(0.19, 0.2, 0.21)),))
    bench_file.write(tmp_path / "old.json", describe_run([faster], 1))
    said = bench("cli", "--compare", str(tmp_path / "old.json"))
    assert said.code == 0
    assert "gym --help  0.2  0.4 x the imports  2.00    worse" in said.out
    assert bench("cli", "--compare", str(tmp_path / "old.json"), "--strict").code == 1


def test_a_file_to_compare_with_is_read_before_anything_is_measured(bench):
    said = bench("cli", "--compare", "none.json")
    assert said.code == 1
    assert "there is no file 'none.json'" in said.err
    assert "cli (1 of 1)" not in said.err


def test_a_part_that_is_not_there_gives_the_list_of_parts(gym):
    said = gym("bench", "in_fligt")
    assert said.code == 2
    assert "there is no part 'in_fligt'. Did you mean 'in_flight'?" in said.err
    assert "only when named:\n  demo" in said.err


def test_who_stops_it_keeps_what_was_measured(gym, monkeypatch, tmp_path):
    def run_parts(names, repeat, on_start):
        yield MEASURED["cli"]
        raise KeyboardInterrupt

    monkeypatch.setattr(parts, "run_parts", run_parts)
    said = gym("bench", "--output", "run.json")
    assert said.code == 130
    assert bench_file.read(tmp_path / "cwd" / "run.json").rows == MEASURED["cli"].rows


def test_the_parts_can_be_listed(gym):
    said = gym("bench", "list")
    assert said.code == 0
    assert "  in_flight      memory, and the latency that we add" in said.out
    assert "only when named:\n  demo" in said.out
