# SPDX-License-Identifier: Apache-2.0
"""Tasks about website visits: plots, some of which depend on what the visits were."""

from datetime import date, timedelta

from resources_servers.workplace_assistant.company import Draw
from resources_servers.workplace_assistant.tasks.script import Make, Script, Unclear

_VALUES = {
    "total_visits": "total visits",
    "session_duration_seconds": "session duration",
    "user_engaged": "engaged users",
    "visits_direct": "direct visits",
    "visits_referral": "visits by referral",
    "visits_search_engine": "visits from search engines",
    "visits_social_media": "visits from social media",
}
_PLOTS = {"bar": "bar chart", "line": "line chart", "scatter": "scatter plot", "histogram": "histogram"}


def plot(draw: Draw, do: Script) -> str:
    first, last = _span(draw)
    value = draw.pick(tuple(_VALUES))
    kind = draw.pick(tuple(_PLOTS))
    _plot(do, first, last, value, kind)
    asked = draw.pick(("Make a {} of {} on our website", "Show me a {} of the website's {}"))
    return f"{asked.format(_PLOTS[kind], _VALUES[value])} from {first} to {last}"


def plot_two(draw: Draw, do: Script) -> str:
    first, last = _span(draw)
    (one, other), kind = draw.some(tuple(_VALUES), 2), draw.pick(tuple(_PLOTS))
    _plot(do, first, last, one, kind)
    _plot(do, first, last, other, kind)
    return (
        f"Make two plots of our website from {first} to {last}, each a {_PLOTS[kind]}: first {_VALUES[one]}, "
        f"then {_VALUES[other]}"
    )


def plot_if_visits_grew(draw: Draw, do: Script) -> str:
    first, last = _span(draw)
    visits = do("analytics_total_visits_count", time_min=first, time_max=last)
    if visits.get(first, 0) == visits.get(last, 0):
        raise Unclear
    _plot(do, first, last, "total_visits", "line" if visits.get(last, 0) > visits.get(first, 0) else "bar")
    return (
        f"Did our website have more visits on {last} than on {first}? If so, make a line chart of total visits from "
        f"{first} to {last}, otherwise a bar chart"
    )


def plot_better_source(draw: Draw, do: Script) -> str:
    first, last = _span(draw)
    one, other = draw.some(("direct", "referral", "search engine", "social media"), 2)
    counts = {}
    for source in (one, other):
        visits = do("analytics_traffic_source_count", time_min=first, time_max=last, traffic_source=source)
        counts[source] = sum(visits.values())
    if counts[one] == counts[other]:
        raise Unclear
    _plot(do, first, last, f"visits_{max(counts, key=lambda s: counts[s]).replace(' ', '_')}", "histogram")
    return (
        f"From {first} to {last}, which traffic source brought more visits in total: {one} or {other}? Make a "
        "histogram of the visits from that source in this period"
    )


def _plot(do: Script, first: str, last: str, value: str, kind: str) -> None:
    do("analytics_create_plot", time_min=first, time_max=last, value_to_plot=value, plot_type=kind)


def _span(draw: Draw) -> tuple[str, str]:
    first = draw.day(date(2023, 9, 4), date(2023, 11, 12))
    return str(first), str(first + timedelta(days=draw.between(3, 16)))


TASKS: tuple[Make, ...] = (plot, plot_two, plot_if_visits_grew, plot_better_source)
