# SPDX-License-Identifier: Apache-2.0
"""Visits to the website: look at them, count them by day, make plots. A plot is the name of a file; none is drawn."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from resources_servers.workplace_assistant.company import SOURCES
from resources_servers.workplace_assistant.toolkits.tool import (
    ToolError,
    parse_earliest_day,
    parse_latest_day,
    reads,
    require_choice,
    writes,
)
from resources_servers.workplace_assistant.world import Row, World

PLOTTED = (
    "total_visits",
    "session_duration_seconds",
    "user_engaged",
    "visits_direct",
    "visits_referral",
    "visits_search_engine",
    "visits_social_media",
)
PLOT_TYPES = ("bar", "line", "scatter", "histogram")
_SPAN: dict[str, Any] = {
    "time_min": "First day, as 'YYYY-MM-DD', inclusive.",
    "time_max": "Last day, as 'YYYY-MM-DD', inclusive.",
}


@reads(visitor_id="8-digit ID of the visitor.")
def get_visitor_information_by_id(world: World, visitor_id: str) -> list[Row]:
    """Gets all visits of a visitor to the website."""
    visits = [visit for visit in world.company.visits if visit["visitor_id"] == visitor_id]
    if not visits:
        raise ToolError("Visitor not found.")
    return visits


@writes(
    **_SPAN,
    value_to_plot=f"One of {', '.join(map(repr, PLOTTED))}.",
    plot_type=f"One of {', '.join(map(repr, PLOT_TYPES))}.",
)
def create_plot(world: World, time_min: str, time_max: str, value_to_plot: str, plot_type: str) -> str:
    """Plots website data of a span of days and returns the path of the plot."""
    require_choice(value_to_plot, PLOTTED, "Value to plot")
    require_choice(plot_type, PLOT_TYPES, "Plot type")
    path = f"plots/{time_min}_{time_max}_{value_to_plot}_{plot_type}.png"
    world.plots = (*world.plots, {"file_path": path})
    return path


@reads(**_SPAN)
def total_visits_count(world: World, time_min: str | None = None, time_max: str | None = None) -> dict[str, int]:
    """Counts the visits of each day."""
    return dict(Counter(visit["date_of_visit"] for visit in _visits(world, time_min, time_max)))


@reads(**_SPAN)
def engaged_users_count(world: World, time_min: str | None = None, time_max: str | None = None) -> dict[str, int]:
    """Counts the visits of engaged users of each day."""
    return _count(world, time_min, time_max, "user_engaged", "True")


@reads(**_SPAN)
def get_average_session_duration(
    world: World, time_min: str | None = None, time_max: str | None = None
) -> dict[str, float]:
    """Gets the average session duration of each day, in seconds."""
    seconds = dict[str, list[int]]()
    for visit in _visits(world, time_min, time_max):
        seconds.setdefault(visit["date_of_visit"], []).append(int(visit["session_duration_seconds"]))
    return {day: round(sum(found) / len(found), 2) for day, found in seconds.items()}


@reads(**_SPAN, traffic_source=f"One of {', '.join(map(repr, SOURCES))}; all if not given.")
def traffic_source_count(
    world: World, time_min: str | None = None, time_max: str | None = None, traffic_source: str | None = None
) -> dict[str, int]:
    """Counts the visits of each day that came from a source."""
    if not traffic_source:
        return total_visits_count(world, time_min, time_max)
    return _count(
        world, time_min, time_max, "traffic_source", require_choice(traffic_source, SOURCES, "Traffic source")
    )


def _visits(world: World, time_min: str | None, time_max: str | None) -> Iterator[Row]:
    first = parse_earliest_day(time_min, "time_min")
    last = parse_latest_day(time_max, "time_max")
    return (visit for visit in world.company.visits if first <= visit["date_of_visit"] <= last)


def _count(world: World, time_min: str | None, time_max: str | None, column: str, value: str) -> dict[str, int]:
    """Return how many visits of each day have a value; days with visits but none of those are 0."""
    counts = Counter[str]()
    for visit in _visits(world, time_min, time_max):
        counts[visit["date_of_visit"]] += visit[column] == value
    return dict(counts)
