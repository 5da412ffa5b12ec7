# SPDX-License-Identifier: Apache-2.0
"""The terminal, the metrics file, the viewer and its export show the same numbers, intervals and counts."""

import asyncio
from contextlib import nullcontext
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import orjson
from hypothesis import example, given, settings, strategies as st

from nemo_gym._results.aggregate_files import Requested, aggregate_with, make_metric_table, write_aggregates
from nemo_gym._results.metrics.grouped_metrics import aggregate
from nemo_gym._results.metrics.pass_at_k import select_means
from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym._viewer.files.file_index import open_index
from nemo_gym._viewer.files.file_overview import ALL_AGENTS, make_overview
from nemo_gym._viewer.files.run_companions import open_failures
from nemo_gym._viewer.html.report_export import export_report
from nemo_gym.reward_profile import compute_subset_metrics

LEVELS = ("easy", "hard")


class Played(NamedTuple):
    """One planned rollout; None for a reward: it failed."""

    agent: str
    task: int
    rollout: int
    reward: float | None
    overlap: float | None

    def row(self, **fields: Any) -> dict[str, Any]:
        key = {"_ng_task_index": self.task, "_ng_rollout_index": self.rollout, "agent_ref": {"name": self.agent}}
        params = {"input": [{"role": "user", "content": f"question {self.task}"}]}
        return {**key, "responses_create_params": params, "level": LEVELS[self.task % 2], **fields}

    def result(self) -> dict[str, Any]:
        tokens = 3 + self.task
        usage = {"input_tokens": 10, "output_tokens": tokens, "total_tokens": 10 + tokens}
        extra = {} if self.overlap is None else {"overlap": self.overlap}
        return self.row(reward=self.reward, response={"output": [], "status": "completed", "usage": usage}, **extra)

    def failure(self) -> dict[str, Any]:
        return self.row(_ng_failure_class="timeout", _ng_failure={"kind": "timeout", "message": "too late"})


async def own_metrics(agent: str, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What a server with metrics by category answers; agent `b` has none of its own."""
    if agent == "b":
        return None
    computed = aggregate(
        rows,
        lambda tasks: {**compute_subset_metrics(tasks, "level"), "elo": 1234.5},
        lambda metrics: {
            **select_means(metrics),
            **{n: v for n, v in metrics.items() if "/pass@1/" in n or n == "elo"},
        },
    )
    return {"agent_metrics": computed.agent, "key_metrics": computed.key, "group_level_metrics": computed.tasks}


class MetricsTable(HTMLParser):
    """The cells of the first table of a page that has a column `metric`."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self._in_cell = False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag):
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data):
        if self._in_cell:
            self.tables[-1][-1][-1] += data

    def rows(self, agent: str) -> list[list[str]]:
        heading, *rows = next(table for table in self.tables if "metric" in table[0])
        return rows if heading[0] == "agent" else [[agent, *row] for row in rows]


def write_run(folder: Path, played: list[Played]) -> Path:
    paths = RunPaths.of(folder / "r.jsonl")
    scored = [one.result() for one in played if one.reward is not None]
    failed = [one.failure() for one in played if one.reward is None]
    for path, rows in (
        (paths.materialized, [one.row() for one in played]),
        (paths.failures, failed),
        (paths.output, scored),
    ):
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return paths.output


def shown_in_viewer(path: Path) -> tuple[list[Any], int]:
    with open_index(path) as index:
        assert index.wait(300)
        with open_failures(index) or nullcontext() as failures:
            assert failures is None or failures.wait(300)
            report = make_overview(index, failures)
    rows = [(agent.agent, row) for agent in report.agents if agent.agent != ALL_AGENTS for row in agent.metrics]
    return rows, report.n_failed


def shown_in_export(path: Path, folder: Path, only_agent: str) -> list[list[str]]:
    with open_index(path) as index:
        page = export_report([index], folder / "out").index.read_text()
    return [row for row in MetricsTable(page).rows(only_agent) if row[0] != ALL_AGENTS]


REWARDS = st.none() | st.sampled_from([0.0, 1.0]) | st.floats(-2, 2).map(lambda value: round(value, 3))
RUNS = st.lists(
    st.lists(st.tuples(REWARDS, st.none() | st.integers(0, 5).map(lambda value: value / 7)), min_size=1, max_size=3),
    min_size=1,
    max_size=4,
)


def played_by(agent: str, tasks: list[list[tuple[float | None, float | None]]], first: int) -> list[Played]:
    return [Played(agent, first + t, r, *one) for t, runs in enumerate(tasks) for r, one in enumerate(runs)]


@settings(max_examples=6, deadline=None)
@given(RUNS, st.none() | RUNS)
@example([[(1.0, 0.5), (0.0, 0.25), (None, None)], [(1.0, 1.0)]], [[(1.0, None)], [(0.0, None), (None, None)]])
@example([[(1.0, None), (1.0, None)], [(1.0, None), (1.0, None)]], None)
@example([[(None, None)]], [[(0.0, None)]])
def test_all_places_show_the_same(ours, theirs):
    played = played_by("a", ours, 0) + played_by("b", theirs or [], len(ours))
    with TemporaryDirectory() as name:
        folder = Path(name)
        path = write_run(folder, played)
        requested = Requested.count_beside([path])
        aggregates = asyncio.run(aggregate_with(own_metrics, [path], requested=requested))
        computed, _ = shown_in_viewer(path)

        metrics_file = write_aggregates(RunPaths.of(path).aggregate_metrics, aggregates)
        terminal = make_metric_table(aggregates)[1:]
        viewer, n_failed = shown_in_viewer(path)
        as_text = [[agent, *row.cells] for agent, row in viewer]

        assert [row for row in as_text if row in terminal] == terminal
        key_names = {(row[0], row[1]) for row in terminal}
        assert [row for row in as_text if (row[0], row[1]) in key_names] == terminal, "and no second number for a name"
        if any(one.reward is not None for one in played):
            assert shown_in_export(path, folder, as_text[0][0]) == as_text
        assert n_failed == sum(one.reward is None for one in played)

        confidence = {
            entry["agent_ref"]["name"]: entry["confidence"] for entry in orjson.loads(metrics_file.read_bytes())
        }
        for agent, row in [*viewer, *computed]:
            in_file = confidence[agent].get(row.name)
            if in_file is not None:
                assert row.value == in_file["estimate"]
                assert [row.low, row.high] == (in_file["ci95"] or [None, None])
                assert row.n_scored == in_file["n_scored"]
        assert {"mean/reward", "mean/overlap"} >= {row.name for _, row in computed if row.name.startswith("mean/")}


def test_metrics_of_a_category_say_how_many_rollouts_are_in_it():
    played = played_by("a", [[(1.0, None), (0.0, None)], [(1.0, None), (None, None)], [(1.0, None)]], 0)
    with TemporaryDirectory() as name:
        path = write_run(Path(name), played)
        aggregates = asyncio.run(aggregate_with(own_metrics, [path], requested=Requested.count_beside([path])))
        scored = {row[1]: row[-1] for row in make_metric_table(aggregates)[1:]}
    assert scored["easy/pass@1/accuracy"] == "3"
    assert scored["hard/pass@1/accuracy"] == "1"
    assert (scored["mean/reward"], scored["elo"]) == ("4 of 5", ""), "what it rests on, only the server knows"
