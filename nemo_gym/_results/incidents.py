# SPDX-License-Identifier: Apache-2.0
"""Scored rollouts in which something went wrong: how many met a crashed tool, and how many were cut off by what."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nemo_gym._rollouts.incidents import pick_tool_errors
from nemo_gym._rollouts.types import Row
from nemo_gym._util.row_keys import NG_CUT_OFF_KEY, NG_TOOL_ERRORS_KEY

_TOOLS_SHOWN = 5
_MESSAGE_SHOWN = 120


@dataclass
class Incidents:
    """Counts of rollouts, not of calls: a rollout that met the same crash ten times counts once."""

    met_crash: int = 0
    tools: Counter[str] = field(default_factory=Counter)
    examples: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The first crash of every tool: its status and message."""
    cut_off: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row) -> None:
        """Count a scored row."""
        errors = row.get(NG_TOOL_ERRORS_KEY)
        if errors and (errors := pick_tool_errors(errors)):
            self.met_crash += 1
            by_tool = {error["tool"]: error for error in reversed(errors)}
            self.tools.update(by_tool.keys())
            for tool, error in by_tool.items():
                self.examples.setdefault(tool, {"status": error["status"], "message": error["message"]})
        cut_off = row.get(NG_CUT_OFF_KEY)
        if cut_off:
            self.cut_off[str(cut_off)] += 1

    @classmethod
    def together(cls, several: Iterable["Incidents"]) -> "Incidents":
        """Return the sum of several counts."""
        total = cls()
        for one in several:
            total.met_crash += one.met_crash
            total.tools += one.tools
            total.examples = one.examples | total.examples
            total.cut_off += one.cut_off
        return total

    def as_json(self) -> dict[str, Any]:
        tools = {tool: {"rollouts": count, **self.examples[tool]} for tool, count in self.tools.most_common()}
        return {
            "tool_errors": {"rollouts": self.met_crash, "tools": tools},
            "cut_off": dict(self.cut_off.most_common()),
        }

    def lines(self, n_scored: int) -> list[str]:
        """Return a line for each kind of incident that occurred in `n_scored` rollouts."""
        said = []
        if self.met_crash:
            shown = [self._crash_text(tool, count) for tool, count in self.tools.most_common(_TOOLS_SHOWN)]
            more = f" and {len(self.tools) - _TOOLS_SHOWN} more tools" if len(self.tools) > _TOOLS_SHOWN else ""
            said.append(
                f"{self.met_crash} of {n_scored} rollouts met a crashed tool: {', '.join(shown)}{more}; "
                f"`--fail-on-tool-error` makes them failures"
            )
        if self.cut_off:
            by_cause = ", ".join(f"{count} by {cause}" for cause, count in self.cut_off.most_common())
            said.append(f"{self.cut_off.total()} of {n_scored} rollouts were cut off: {by_cause}")
        return said

    def _crash_text(self, tool: str, count: int) -> str:
        example = self.examples[tool]
        message = " ".join(example["message"].split())
        if len(message) > _MESSAGE_SHOWN:
            message = f"{message[:_MESSAGE_SHOWN]}…"
        return f"{tool} ×{count} ({example['status']}: {message})"
