# SPDX-License-Identifier: Apache-2.0
"""The profiler: the files that it writes, and the server that it is attached to."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import ValidationError

from nemo_gym._servers.launching.launch import plan_launch, release_ports, serve_config
from nemo_gym._util.jsonl_files import read_rows
from nemo_gym.errors import GymError
from nemo_gym.profiling import Profiler
from nemo_gym.rollout_collection import RolloutCollectionHelper
from tests.servers.launching.test_launch import (
    AGENT,
    DATA,
    config as config,  # a fixture
)

pytest.importorskip("yappi")


def inner_work(number: int) -> int:
    return sum(range(number))


def outer_work(rounds: int) -> int:
    return sum(inner_work(200) for _ in range(rounds))


def factorial(number: int) -> int:
    return 1 if number < 2 else number * factorial(number - 1)


def profile(tmp_path: Path, **fields: str) -> Profiler:
    profiler = Profiler(name="server", base_profile_dir=tmp_path / "profiles", **fields)
    profiler.start()
    outer_work(7)
    factorial(5)
    profiler.stop()
    return profiler


def rows_of(log: str) -> dict[str, list[str]]:
    lines = log.splitlines()
    assert lines[0].split() == ["name", "ncall", "tsub", "ttot", "tavg"]
    return {line.rsplit(maxsplit=4)[0].split()[-1]: line.rsplit(maxsplit=4)[1:] for line in lines[1:]}


def test_the_log_has_one_line_per_function_with_calls_and_times(tmp_path: Path):
    profile(tmp_path)
    rows = rows_of((tmp_path / "profiles" / "server.log").read_text())
    calls, tsub, ttot, tavg = rows["inner_work"]
    assert calls == "7"
    assert 0 <= float(tsub) <= float(ttot)
    assert float(tavg) <= float(ttot)
    assert rows["factorial"][0] == "5/1"


def test_the_most_expensive_function_comes_first(tmp_path: Path):
    profile(tmp_path)
    _, *lines = (tmp_path / "profiles" / "server.log").read_text().splitlines()
    times = [float(line.split()[-2]) for line in lines]  # several functions may have one name
    assert times == sorted(times, reverse=True)


def test_the_columns_of_the_log_line_up(tmp_path: Path):
    profile(tmp_path, required_str="test_profiling")
    header, *lines = (tmp_path / "profiles" / "server.log").read_text().splitlines()
    assert {line[header.index("ncall") - 1] for line in lines} == {" "}
    assert all(line[header.index("ncall")].isdigit() for line in lines)


def test_only_functions_with_the_required_string_are_shown(tmp_path: Path):
    profile(tmp_path, required_str="inner_work")
    assert list(rows_of((tmp_path / "profiles" / "server.log").read_text())) == ["inner_work"]


def test_a_callgrind_file_and_a_call_graph_are_written(tmp_path: Path):
    profile(tmp_path, required_str="test_profiling")
    assert "inner_work" in (tmp_path / "profiles" / "server.callgrind").read_text()
    graph = (tmp_path / "profiles" / "server.dot").read_text()
    assert graph.startswith("digraph {")
    assert "outer_work" in graph
    assert "->" in graph


def test_without_graphviz_there_is_no_picture_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    profile(tmp_path)
    assert not (tmp_path / "profiles" / "server.png").exists()


def test_with_graphviz_the_call_graph_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    dot = tmp_path / "dot"
    dot.write_text('#!/bin/sh\n[ "$1" = -Tpng ] && [ "$3" = -o ] && cp "$2" "$4"\n')
    dot.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    profile(tmp_path)
    assert (tmp_path / "profiles" / "server.png").read_bytes() == (tmp_path / "profiles" / "server.dot").read_bytes()


def test_a_broken_graphviz_only_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    dot = tmp_path / "dot"
    dot.write_text("#!/bin/sh\nexit 3\n")
    dot.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    profile(tmp_path)
    assert "could not be drawn" in caplog.text


def test_a_later_dump_replaces_the_earlier_one(tmp_path: Path):
    profiler = Profiler(name="server", base_profile_dir=tmp_path)
    profiler.start()
    inner_work(1)
    first = rows_of(profiler.dump().read_text())["inner_work"][0]
    inner_work(1)
    second = rows_of(profiler.dump().read_text())["inner_work"][0]
    profiler.stop()
    assert (first, second) == ("1", "2")


def test_stopping_one_of_two_profilers_leaves_the_other_running(tmp_path: Path):
    one, two = (Profiler(name=name, base_profile_dir=tmp_path) for name in ("one", "two"))
    one.start()
    two.start()
    one.stop()
    inner_work(1)
    two.stop()
    assert "inner_work" in rows_of((tmp_path / "two.log").read_text())
    assert "inner_work" not in rows_of((tmp_path / "one.log").read_text())


@pytest.mark.thorough
def test_an_attached_server_answers_stats_and_writes_its_profile_when_it_ends(tmp_path: Path):
    app = FastAPI()
    app.post("/verify")(lambda: inner_work(10))
    Profiler(name="my_server", base_profile_dir=tmp_path).attach(app)
    with TestClient(app) as client:
        assert client.post("/verify").json() == 45
        assert rows_of(client.get("/stats").text)["inner_work"][0] == "1"
        client.post("/verify")
    assert rows_of((tmp_path / "my_server.log").read_text())["inner_work"][0] == "2"


def test_a_lifespan_of_the_app_still_runs(tmp_path: Path):
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        seen.append("up")
        yield
        seen.append("down")

    app = FastAPI(lifespan=lifespan)
    Profiler(name="s", base_profile_dir=tmp_path).attach(app)
    with TestClient(app):
        assert seen == ["up"]
    assert seen == ["up", "down"]


@pytest.mark.parametrize("tool", ["yappi", "gprof2dot"])
@pytest.mark.parametrize("act", [Profiler.start, Profiler.dump])
def test_a_missing_tool_is_named_with_the_extras_that_have_it(tmp_path: Path, monkeypatch, tool, act):
    monkeypatch.setitem(sys.modules, tool, None)
    with pytest.raises(ModuleNotFoundError, match=rf"{tool}.*\n.*Install nemo-gym\[dev\]") as raised:
        act(Profiler(name="s", base_profile_dir=tmp_path))
    assert isinstance(raised.value, GymError)
    assert list(tmp_path.iterdir()) == []


def test_a_name_with_a_space_is_refused(tmp_path: Path):
    with pytest.raises(ValidationError, match="Spaces are not allowed"):
        Profiler(name="my server", base_profile_dir=tmp_path)


def test_each_server_that_is_profiled_has_a_process_of_its_own_with_yappi(config, monkeypatch):
    config.profiling_enabled = True
    assert {plan.placement for plan in plan_launch(config)} == {"process"}
    monkeypatch.setitem(sys.modules, "yappi", None)
    with pytest.raises(GymError, match=r"pip install 'nemo-gym\[profiling\]'"):
        plan_launch(config)
    release_ports(config)


async def test_a_run_writes_the_calls_of_each_server_under_its_name_and_says_where(config, tmp_path: Path):
    config.profiling_enabled, config.profiling_results_dirpath = True, str(tmp_path)
    config.default_placement = "inline"  # as hard as it gets: all of them in this process
    rows = [
        {**row, "_ng_task_index": index, "_ng_rollout_index": 0, "agent_ref": {"name": AGENT}}
        for index, row in enumerate(read_rows(DATA / "example.jsonl"))
    ]
    said: list[str] = []
    async with serve_config(config, said.append):
        for finished in RolloutCollectionHelper().run_examples(rows):
            await finished
    logs = read_logs(tmp_path)
    verified = {name: log[key][0] for name, log in logs.items() for key in log if key.endswith(".verify")}
    assert verified == {"example_single_tool_call": str(len(rows))}
    assert logs[AGENT]["SimpleAgent.run"][0] == str(len(rows))
    heading, *places = said[-1].splitlines()
    assert heading == f"profiles in {tmp_path}:"
    assert sorted(places) == sorted(f"  {name}: {name}.log" for name in logs)


def read_logs(folder: Path) -> dict[str, dict[str, list[str]]]:
    return {path.stem: rows_of(path.read_text()) for path in folder.glob("*.log")}
