# SPDX-License-Identifier: Apache-2.0
"""Small pieces of HTML that the parts of the page share: links between places, numbers, rewards as colours.

Everything that comes from a file is escaped here or by the caller; nothing is rendered as markdown.
"""

from collections.abc import Iterable, Sequence
from html import escape

from nemo_gym._reports.query import Browser, RowSummary
from nemo_gym._view.place import Place

_SHORT = ((1e9, "G"), (1e6, "M"), (1e4, "k"))


def link(place: Place, html: str, *, kind: str = "", title: str = "", name: str = "", current: bool = False) -> str:
    """A link to a place, which the page follows without loading anew; `html` is its content, escaped already."""
    attributes = {"id": name, "class": kind, "title": title, "aria-current": "true" if current else ""}
    given = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items() if value)
    return f'<a href="{escape(place.query())}"{given}>{html}</a>'


def tag(name: str, kind: str, *content: str) -> str:
    """An element of a class; its content is HTML."""
    return f'<{name} class="{kind}">{"".join(content)}</{name}>'


def chips(label: str, items: Iterable[str]) -> str:
    """A row of links that are choices."""
    return tag("div", "ngp-chips", tag("span", "ngp-label", escape(label)), *items)


def count(number: int) -> str:
    """A whole number, readable."""
    return f"{number:,}"


def short(number: float) -> str:
    """A number in little space: 12.3k."""
    for size, letter in _SHORT:
        if abs(number) >= size:
            return f"{number / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{number:,.0f}" if abs(number) >= 100 or float(number).is_integer() else f"{number:.3g}"


def plural(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def reward_text(reward: float) -> str:
    """A reward as it is written everywhere."""
    return f"{reward:.3g}" if abs(reward) < 1e6 else f"{reward:.2e}"


class RewardScale:
    """Rewards as shares between the lowest and the highest of a file, at least 0 to 1, for colours."""

    def __init__(self, low: float | None, high: float | None) -> None:
        self._low = min(0.0, low if low is not None else 0.0)
        self._high = max(1.0, high if high is not None else 1.0)

    @classmethod
    def of(cls, browser: Browser) -> "RewardScale":
        """The scale of a file."""
        choices = browser.choices()
        return cls(choices.reward_low, choices.reward_high)

    def style(self, reward: float) -> str:
        """The attribute that colours an element."""
        share = (reward - self._low) / (self._high - self._low)
        return f'style="--share:{share:.3f}"'

    def chip(self, reward: float) -> str:
        """A reward as a coloured number."""
        return f'<span class="ngp-reward" {self.style(reward)}>{reward_text(reward)}</span>'

    def outcome(self, one: RowSummary) -> str:
        """What a rollout came to, as a chip."""
        if one.outcome == "failed":
            return tag("span", "ngp-badge is-bad", escape(one.failure_kind or "failed"))
        return self.chip(one.reward) if one.reward is not None else tag("span", "ngp-faint", "–")

    def dots(self, place: Place, rollouts: Sequence[RowSummary], current: int | None = None) -> str:
        """Rollouts of a task as dots, each a link; a ring round the `current` one."""
        return tag("span", "ngp-dots", *(self._dot(place, one, one.row == current) for one in rollouts))

    def _dot(self, place: Place, one: RowSummary, current: bool) -> str:
        at = place.at(tab="rollout", row=one.row)
        number = f"rollout {one.rollout} · "
        if one.outcome == "failed" or one.reward is None:
            said, kind, style = one.failure_kind or one.outcome, "ngp-dot is-bad", ""
        else:
            said, kind, style = f"reward {reward_text(one.reward)}", "ngp-dot", " " + self.style(one.reward)
        ring = ' aria-current="true"' if current else ""
        title = escape(f"{number}{said}")
        return f'<a href="{escape(at.query())}" class="{kind}" title="{title}" aria-label="{title}"{style}{ring}></a>'
