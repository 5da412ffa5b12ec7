# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of metrics: what the terminal, the viewer and its export show of an agent.

They are made of the agent's entry in the metrics file, so that all three show the same numbers, intervals and counts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nemo_gym._metrics.aggregate import MEAN_REWARD
from nemo_gym._metrics.pass_at_k import AVERAGE, MAJORITY, N_SCORED, N_TASKS, PASS, select_highest_k
from nemo_gym._results.rows import count_of


@dataclass(frozen=True)
class MetricRow:
    """One metric, and how many rollouts it rests on."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    """The 95 % interval, where there is one."""
    n_scored: int | None = None
    n_requested: int | None = None
    is_part: bool = False
    """It may rest on some of the rollouts only; how many of those were requested is not known."""

    @property
    def text(self) -> str:
        return number_text(self.value)

    @property
    def interval_text(self) -> str:
        return "" if self.low is None or self.high is None else f"{number_text(self.low)} … {number_text(self.high)}"

    @property
    def scored_text(self) -> str:
        if self.n_scored is None:
            return ""
        return str(self.n_scored) if self.is_part else count_of(self.n_scored, self.n_requested)


def number_text(value: float) -> str:
    """Return a number as people read it."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def metric_rows(entry: Mapping[str, Any]) -> list[MetricRow]:
    """Return the rows of an agent's entry in the metrics file: the reward, what is derived of it, the key metrics."""
    confidence = entry.get("confidence") or {}
    names = [MEAN_REWARD] if MEAN_REWARD in confidence else []
    for pattern in (PASS, AVERAGE, MAJORITY):
        names += select_highest_k(confidence, pattern)
    # A number that is too large for a float has no row.
    known = [name for name in names if confidence[name]["estimate"] is not None]
    return [_with_interval(name, confidence[name]) for name in known] + [*_key_rows(entry, confidence, names)]


def _key_rows(entry: Mapping[str, Any], confidence: Mapping[str, Any], shown: list[str]) -> Iterator[MetricRow]:
    agent_metrics = entry.get("agent_metrics") or {}
    for name, value in (entry.get("key_metrics") or {}).items():
        if name in shown or type(value) not in (int, float) or name.endswith((f"/{N_SCORED}", f"/{N_TASKS}")):
            continue
        if name in confidence and confidence[name]["estimate"] is not None:
            yield _with_interval(name, confidence[name])
        else:  # what a server's own metric rests on, only the server can know
            yield MetricRow(name, value, n_scored=_n_of_part(name, agent_metrics), is_part=True)


def _with_interval(name: str, interval: Mapping[str, Any]) -> MetricRow:
    low, high = interval["ci95"] or (None, None)
    return MetricRow(name, interval["estimate"], low, high, interval["n_scored"], interval["n_requested"])


def _n_of_part(name: str, agent_metrics: Mapping[str, Any]) -> int | None:
    """Return how many rollouts a metric rests on, if it or its category, the beginning of its name, says so."""
    places, category = [f"{N_SCORED}/{name}"], name
    while "/" in category:
        category = category.rpartition("/")[0]
        places.append(f"{category}/{N_SCORED}")
    return next((agent_metrics[place] for place in places if isinstance(agent_metrics.get(place), int)), None)
