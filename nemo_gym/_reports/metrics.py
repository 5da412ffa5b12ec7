# SPDX-License-Identifier: Apache-2.0
"""The metrics of an agent in the viewer: those of the run's own metrics file, those of the rows, and histograms.

What is computed here is computed by `nemo_gym._metrics`, as the file is: tasks are the independent units.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from nemo_gym._metrics.aggregate import MEAN_REWARD, compute_headline
from nemo_gym._metrics.describe import are_binary, histogram
from nemo_gym._metrics.intervals import Interval, interval_over_tasks
from nemo_gym._reports.columns import Columns
from nemo_gym._reports.row_facts import SCORED
from nemo_gym._results.metric_rows import MetricRow, metric_rows
from nemo_gym._rollouts.paths import RunPaths

NO_AGENT = "(no agent)"
# Beyond this the file holds many tasks, and reading it would cost more memory than all else together.
_LARGEST_REPORTED_BYTES = 1 << 22
_FEW = 11
_BINARY = frozenset({0.0, 1.0})


def compute_reward_metrics(
    rewards: Sequence[Sequence[float]], *, binary: bool, curves: bool, n_requested: int | None
) -> list[MetricRow]:
    """Return the mean reward, and with `curves` pass@k for the largest k; nothing where nothing was scored."""
    if not rewards:
        return []
    n_scored = sum(map(len, rewards))
    if curves:
        intervals = compute_headline(rewards, binary=binary)
    else:
        intervals = {MEAN_REWARD: interval_over_tasks(rewards, binary=binary)}
    return [_make_row(name, interval, n_scored, n_requested) for name, interval in intervals.items()]


def compute_field_metrics(columns: Columns, tasks: Sequence[Sequence[int]], n_requested: int | None) -> list[MetricRow]:
    """Return the mean of each of the verifier's numbers, over the scored rollouts that have it."""
    metrics, flags = [], columns.flags
    for name, values in list(columns.fields.items()):
        # NaN is the only number that differs from itself.
        by_task = [[value for row in rows if (value := values[row]) == value and flags[row] & SCORED] for rows in tasks]
        known = [found for found in by_task if found]
        if known:
            interval = interval_over_tasks(known, binary=all(map(are_binary, known)))
            metrics.append(_make_row(f"mean/{name}", interval, sum(map(len, known)), n_requested))
    return metrics


def read_reported_metrics(rollouts: Path) -> dict[str, list[MetricRow]]:
    """Return what the run's own metrics file tells of each agent; nothing if it is older than the rollouts."""
    path = RunPaths.of(rollouts).aggregate_metrics
    try:
        stat = path.stat()
        if stat.st_size > _LARGEST_REPORTED_BYTES or stat.st_mtime_ns < rollouts.stat().st_mtime_ns:
            return {}
        entries = orjson.loads(path.read_bytes())
        return {str((entry.get("agent_ref") or {}).get("name") or NO_AGENT): metric_rows(entry) for entry in entries}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # not there, or not a file of ours
        return {}


def merge_metrics(reported: Sequence[MetricRow], computed: Sequence[MetricRow]) -> list[MetricRow]:
    """Return both without repetition; a number that is reported with its count wins, for it is what the run printed."""
    known = {row.name: row for row in computed}
    known |= {row.name: row for row in reported if row.n_scored is not None or row.name not in known}
    order = dict.fromkeys([*(row.name for row in reported if row.n_scored is not None), *known])
    return [known[name] for name in order]


def _make_row(name: str, interval: Interval, n_scored: int, n_requested: int | None) -> MetricRow:
    return MetricRow(name, interval.estimate, interval.low, interval.high, n_scored, n_requested)


@dataclass(frozen=True)
class Histogram:
    """Counts of values: one bar per value where there are few, bins of equal width where there are many."""

    edges: list[float]
    """One more than there are counts; where `exact`, the last is repeated and each bar stands for its left edge."""
    counts: list[int]
    exact: bool = False
    """Every bar is one value."""

    @property
    def labels(self) -> list[str]:
        """What each bar stands for."""
        if self.exact:
            return [f"{edge:.4g}" for edge in self.edges[:-1]]
        return [f"{low:.3g} – {high:.3g}" for low, high in zip(self.edges, self.edges[1:], strict=False)]


def make_histogram(values: Sequence[float]) -> Histogram | None:
    """Count the values; None for no values."""
    if not values:
        return None
    counted = Counter(values)
    if len(counted) <= _FEW:
        # Of right and wrong, the one that never came is shown too.
        distinct = sorted(counted.keys() | _BINARY if counted.keys() <= _BINARY else counted)
        return Histogram([*distinct, distinct[-1]], [counted[value] for value in distinct], exact=True)
    binned = histogram(values)
    return Histogram(binned["bins"], binned["counts"])
