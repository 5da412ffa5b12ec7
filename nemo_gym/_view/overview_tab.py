# SPDX-License-Identifier: Apache-2.0
"""The Overview tab in Gradio: numbers and tables as HTML, plots by Gradio's own components."""

from html import escape
from typing import Any

import gradio as gr

from nemo_gym._reports.html import failures_html, metrics_html, problems_html
from nemo_gym._reports.overview import AgentOverview, Overview
from nemo_gym._view import plots
from nemo_gym._view.links import chips, count, link, plural, reward_text, short, tag
from nemo_gym._view.place import Place
from nemo_gym._view.shelf import OpenFile
from nemo_gym._view.tables import noun
from nemo_gym._view.widgets import HIDDEN, bars, drawn, panel, points


class OverviewTab:
    """Its components, and what they show of a file."""

    def __init__(self) -> None:
        self.numbers = panel("ngp-numbers")
        with gr.Row(equal_height=True):
            self.rewards = bars("Rewards")
            self.pass_rates = bars("Pass rate per task, worst first")
        with gr.Row(equal_height=True):
            self.by_length = bars("Reward against length")
            self.cloud = points("Reward against length")
            self.by_tools = bars("Reward against tool calls")
        with gr.Row(equal_height=True):
            self.tokens = bars("Tokens per rollout")
            self.failures = bars("Failures by kind")
        self.details = panel("ngp-details")

    @property
    def outputs(self) -> list[Any]:
        """Every component that `updates` may set."""
        drawn = [self.rewards, self.pass_rates, self.by_length, self.cloud, self.by_tools, self.tokens, self.failures]
        return [self.numbers, *drawn, self.details]

    def updates(self, file: OpenFile, place: Place) -> dict[Any, Any]:
        """What the tab shows of a file at a place."""
        report = file.overview()
        agent = _chosen(report, place.agent)
        updates: dict[Any, Any] = {
            self.numbers: numbers_html(file, report, agent, place),
            self.details: details_html(file, report),
            self.failures: drawn(plots.failures(report)),
        }
        if agent is None:
            return updates | dict.fromkeys(self.outputs[1:-2], HIDDEN)
        sample = [point for point in report.points if agent.agent in (point.agent, "all")]
        few = plots.are_few(sample)
        named = [one for one in report.agents if one.agent != "all"] if agent.agent == "all" else [agent]
        return updates | {
            self.rewards: drawn(plots.rewards(agent)),
            self.pass_rates: drawn(plots.pass_rates(agent)),
            self.by_length: drawn(plots.by_length(sample) if few else plots.Plot()),
            self.cloud: drawn(plots.Plot() if few else plots.cloud(sample), color="agent"),
            self.by_tools: drawn(plots.by_tool_calls(sample)),
            self.tokens: drawn(plots.tokens(named), color="tokens"),
        }


def _chosen(report: Overview, name: str) -> AgentOverview | None:
    named = [agent for agent in report.agents if agent.agent == name]
    return next(iter(named or report.agents), None)


def numbers_html(file: OpenFile, report: Overview, agent: AgentOverview | None, place: Place) -> str:
    """The agents to choose from, the numbers that sum it up, and the metrics with their intervals."""
    if not report.n_rows and report.complete:
        return tag("div", "ngp", tag("p", "ngp-empty", "The file holds no rows that can be shown."))
    parts = []
    if len(report.agents) > 1:
        chosen = agent.agent if agent else ""
        parts.append(
            chips(
                "Agent",
                (
                    link(place.at(agent=one.agent), escape(one.agent), kind="ngp-chip", current=one.agent == chosen)
                    for one in report.agents
                ),
            )
        )
    tiles = [_tile(count(report.n_rows), noun(file) + "s"), _tile(count(report.n_tasks), "tasks")]
    if agent is not None:
        tiles += _tiles(agent)
    parts.append(tag("div", "ngp-tiles", *tiles))
    parts += (tag("p", "ngp-note", escape(note)) for note in report.notes)
    table = metrics_html([agent]) if agent is not None and agent.metrics else ""
    return tag("div", "ngp", *parts) + table


def _tiles(agent: AgentOverview) -> list[str]:
    tiles = []
    if agent.mean_reward is not None:
        tiles.append(_tile(reward_text(agent.mean_reward), "mean reward"))
    tiles.append(_tile(count(agent.n_failed), "failed", "is-bad" if agent.n_failed else ""))
    usage = agent.tokens
    if usage.output_mean is not None:
        tiles.append(_tile(short(usage.output_mean), "tokens written per rollout"))
        tiles.append(_tile(short(usage.input_total + usage.output_total), "tokens in all"))
    return tiles


def _tile(value: str, label: str, kind: str = "") -> str:
    return tag("div", f"ngp-tile {kind}", tag("b", "ngp-value", value), tag("span", "ngp-label", label))


def details_html(file: OpenFile, report: Overview) -> str:
    """Failures one by one, and the lines that could not be read."""
    parts = [failures_html(report.failures)] if report.failures else []
    progress = file.progress()
    if progress.n_problems:
        parts.append(problems_html(file.index.problems(), progress.n_problems))
    if not report.complete:
        parts.append(tag("p", "ngp ngp-note", f"So far: {plural(report.n_rows, noun(file))} read."))
    return "".join(parts)
