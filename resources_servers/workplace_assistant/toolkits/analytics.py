# SPDX-License-Identifier: Apache-2.0
"""Visits to the website: look at them, count them by day, make plots. A plot is the name of a file; none is drawn."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from resources_servers.workplace_assistant.company import SOURCES, company
from resources_servers.workplace_assistant.toolkits.tool import (
    ToolError,
    earliest_day,
    latest_day,
    one_of,
    reads,
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


def get_visitor_information_by_id(world: World, visitor_id: str) -> list[Row]:
    """All visits of a visitor."""
    visits = [visit for visit in company().visits if visit["visitor_id"] == visitor_id]
    if not visits:
        raise ToolError("Visitor not found.")
    return visits


def create_plot(world: World, time_min: str, time_max: str, value_to_plot: str, plot_type: str) -> str:
    """Make a plot; where it is."""
    one_of(value_to_plot, PLOTTED, "Value to plot")
    one_of(plot_type, PLOT_TYPES, "Plot type")
    path = f"plots/{time_min}_{time_max}_{value_to_plot}_{plot_type}.png"
    world.plots = (*world.plots, {"file_path": path})
    return path


def total_visits_count(world: World, time_min: str | None = None, time_max: str | None = None) -> dict[str, int]:
    """Visits by day."""
    return dict(Counter(visit["date_of_visit"] for visit in _visits(time_min, time_max)))


def engaged_users_count(world: World, time_min: str | None = None, time_max: str | None = None) -> dict[str, int]:
    """Visits of engaged users by day."""
    return _count(time_min, time_max, "user_engaged", "True")


def get_average_session_duration(
    world: World, time_min: str | None = None, time_max: str | None = None
) -> dict[str, float]:
    """Mean seconds of a visit by day."""
    seconds = dict[str, list[int]]()
    for visit in _visits(time_min, time_max):
        seconds.setdefault(visit["date_of_visit"], []).append(int(visit["session_duration_seconds"]))
    return {day: round(sum(found) / len(found), 2) for day, found in seconds.items()}


def traffic_source_count(
    world: World, time_min: str | None = None, time_max: str | None = None, traffic_source: str | None = None
) -> dict[str, int]:
    """Visits from a source by day; all visits without one."""
    if not traffic_source:
        return total_visits_count(world, time_min, time_max)
    return _count(time_min, time_max, "traffic_source", one_of(traffic_source, SOURCES, "Traffic source"))


def _visits(time_min: str | None, time_max: str | None) -> Iterator[Row]:
    first, last = earliest_day(time_min, "time_min"), latest_day(time_max, "time_max")
    return (visit for visit in company().visits if first <= visit["date_of_visit"] <= last)


def _count(time_min: str | None, time_max: str | None, column: str, value: str) -> dict[str, int]:
    """How many visits of each day have a value; days with visits but none of those are 0."""
    counts = Counter[str]()
    for visit in _visits(time_min, time_max):
        counts[visit["date_of_visit"]] += visit[column] == value
    return dict(counts)


_SPAN: dict[str, Any] = {
    "time_min": "First day, as 'YYYY-MM-DD', inclusive.",
    "time_max": "Last day, as 'YYYY-MM-DD', inclusive.",
}
TOOLS = (
    reads(
        get_visitor_information_by_id,
        "analytics_get_visitor_information_by_id",
        "Gets all visits of a visitor to the website.",
        visitor_id="8-digit ID of the visitor.",
    ),
    writes(
        create_plot,
        "analytics_create_plot",
        "Plots website data of a span of days and returns the path of the plot.",
        **_SPAN,
        value_to_plot=f"One of {', '.join(map(repr, PLOTTED))}.",
        plot_type=f"One of {', '.join(map(repr, PLOT_TYPES))}.",
    ),
    reads(total_visits_count, "analytics_total_visits_count", "Counts the visits of each day.", **_SPAN),
    reads(
        engaged_users_count,
        "analytics_engaged_users_count",
        "Counts the visits of engaged users of each day.",
        **_SPAN,
    ),
    reads(
        get_average_session_duration,
        "analytics_get_average_session_duration",
        "Gets the average session duration of each day, in seconds.",
        **_SPAN,
    ),
    reads(
        traffic_source_count,
        "analytics_traffic_source_count",
        "Counts the visits of each day that came from a source.",
        **_SPAN,
        traffic_source=f"One of {', '.join(map(repr, SOURCES))}; all if not given.",
    ),
)
