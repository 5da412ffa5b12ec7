# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of metrics: the reward and what is derived of it, the verifier's numbers, the server's own.

Intervals are those of `nemo_gym._results`: tasks are the independent units.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from nemo_gym._metrics.pass_at_k import pass_curve
from nemo_gym._reports.columns import Columns
from nemo_gym._reports.facts import SCORED
from nemo_gym._results.aggregate import MEAN_REWARD, mean_reward_interval
from nemo_gym._results.curves import ACCURACY
from nemo_gym._results.intervals import Interval, interval_of_mean
from nemo_gym._results.runs import are_binary
from nemo_gym._rollouts.paths import RunPaths

_PERCENT = 100.0
# Beyond this the file holds many tasks, and reading it would cost more memory than all else together.
_LARGEST_REPORTED_BYTES = 1 << 22


@dataclass(frozen=True)
class Metric:
    name: str
    value: float
    low: float | None = None
    high: float | None = None
    """The 95 % interval, where there is one."""
    n_scored: int | None = None
    n_requested: int | None = None

    @property
    def text(self) -> str:
        return shown(self.value)

    @property
    def interval_text(self) -> str:
        return "" if self.low is None or self.high is None else f"{shown(self.low)} … {shown(self.high)}"

    @property
    def scored_text(self) -> str:
        """How many rollouts it rests on."""
        if self.n_scored is None:
            return ""
        return f"{self.n_scored:,}" if self.n_requested is None else f"{self.n_scored:,} of {self.n_requested:,}"


def shown(value: float) -> str:
    """A number for people."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def reward_metrics(
    rewards: Sequence[Sequence[float]], *, binary: bool, curves: bool, n_requested: int | None
) -> list[Metric]:
    """The mean reward, and with `curves` pass@k for the largest k; empty where nothing was scored."""
    if not rewards:
        return []
    n_scored = sum(map(len, rewards))
    intervals = {MEAN_REWARD: mean_reward_interval(rewards, binary=binary)}
    if curves:
        # As in `nemo_gym._results.curves`, but only the k that is shown: tasks with fewer rollouts take no part.
        k = max(map(len, rewards))
        full = [of_task for of_task in rewards if len(of_task) == k]
        passes, averages = [pass_curve(of_task)[-1] for of_task in full], [math.fsum(one) / k for one in full]
        intervals[f"pass@{k}/{ACCURACY}"] = interval_of_mean(passes, _PERCENT, binary=binary)
        intervals[f"pass@1[avg-of-{k}]/{ACCURACY}"] = interval_of_mean(averages, _PERCENT, binary=binary)
    return [_metric(name, interval, n_scored, n_requested) for name, interval in intervals.items()]


def field_metrics(columns: Columns, tasks: Sequence[Sequence[int]], n_requested: int | None) -> list[Metric]:
    """The mean of each of the verifier's numbers, over the scored rollouts that have it."""
    metrics = []
    for name, values in list(columns.fields.items()):
        flags = columns.flags
        # NaN is the only number that differs from itself.
        by_task = [[value for row in rows if (value := values[row]) == value and flags[row] & SCORED] for rows in tasks]
        known = [found for found in by_task if found]
        if known:
            means = [math.fsum(found) / len(found) for found in known]
            interval = interval_of_mean(means, binary=all(map(are_binary, known)))
            metrics.append(_metric(f"mean/{name}", interval, sum(map(len, known)), n_requested))
    return metrics


def reported_metrics(rollouts: Path) -> dict[str, dict[str, float]]:
    """The key metrics that the run's own aggregate file gives each agent; none if it is older than the rollouts."""
    path = RunPaths.of(rollouts).aggregate_metrics
    try:
        stat = path.stat()
        if stat.st_size > _LARGEST_REPORTED_BYTES or stat.st_mtime_ns < rollouts.stat().st_mtime_ns:
            return {}
        entries = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return dict(_reported(entries if isinstance(entries, list) else []))


def _reported(entries: Iterable[Any]) -> Iterable[tuple[str, dict[str, float]]]:
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("key_metrics"), dict):
            ref = entry.get("agent_ref")
            name = ref.get("name") if isinstance(ref, dict) else None
            numbers = {key: float(value) for key, value in entry["key_metrics"].items() if type(value) in (int, float)}
            yield str(name or "(no agent)"), numbers


def _metric(name: str, interval: Interval, n_scored: int, n_requested: int | None) -> Metric:
    return Metric(name, interval.estimate, interval.low, interval.high, n_scored, n_requested)
