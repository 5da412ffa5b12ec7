# SPDX-License-Identifier: Apache-2.0
"""A rollout as HTML, for the viewer's page and for reports alike.

What a model, a tool or a dataset wrote is always shown as the text it is. The other pieces of a page come from the
modules beside this one and are named here, so that there is one place to import them from.
"""

from collections.abc import Iterator
from typing import Any

from nemo_gym._reports.calls import ModelCall
from nemo_gym._reports.conversation import FailureInfo, Rollout, pretty
from nemo_gym._reports.html_block import block_html
from nemo_gym._reports.html_diff import diff_html as diff_html
from nemo_gym._reports.html_diff import file_comparison_html as file_comparison_html
from nemo_gym._reports.html_overview import failures_html as failures_html
from nemo_gym._reports.html_overview import metrics_html as metrics_html
from nemo_gym._reports.html_overview import overview_html as overview_html
from nemo_gym._reports.html_overview import problems_html as problems_html
from nemo_gym._reports.html_parts import Html, element, folded, joined, json_text, table
from nemo_gym._reports.html_style import SCRIPT as SCRIPT
from nemo_gym._reports.html_style import STYLE as STYLE
from nemo_gym._reports.html_tokens import TOKEN_LIMIT, tokens_html
from nemo_gym._results.metric_rows import number_text as shown

# Indenting puts every token id on a line of its own: beyond this the row is shown as it stands in the file.
_MOST_INDENTED = 1 << 20
_MOST_RAW = 1 << 22
_FIELD_SHOWN = 100
_FIRST_NUMBER = 3
"""The columns of the table of calls from here on are numbers."""


def rollout_html(rollout: Rollout, *, token_limit: int = TOKEN_LIMIT) -> str:
    """Everything about a rollout."""
    tokens = None
    if rollout.tokens is not None:
        tokens = folded(
            f"Tokens ({len(rollout.tokens.tokens):,})", element("div", tokens_html(rollout.tokens, token_limit))
        )
    after = [_calls(rollout), element("div", tokens, _raw(rollout), class_="ngv-folds")]
    return element("div", _header(rollout), _conversation(rollout), *after, class_="ngv")


def _calls(rollout: Rollout) -> Html:
    """The calls to the model, where they were captured; empty if not."""
    if not rollout.calls:
        return Html("")
    heading = ["call", "model", "status", "time", "first byte", "tokens in", "cached", "tokens out", "reasoning"]
    rows = [_call(call) for call in rollout.calls]
    told = [place for place in range(len(heading)) if any(row[place] for row in rows)]
    numbers = [column for column, place in enumerate(told) if place >= _FIRST_NUMBER]
    shown_rows = [[row[place] or "–" for place in told] for row in rows]
    return joined(
        [element("h2", "Model calls"), table([heading[place] for place in told], shown_rows, numbers=numbers)]
    )


def _header(rollout: Rollout) -> Html:
    head = element("div", element("h1", rollout.title), _reward(rollout), class_="ngv-head")
    facts = [element("span", f"{name} ", element("b", value)) for name, value in _facts(rollout)]
    tiles = [_tile(name, _number(value)) for name, value in rollout.components]
    return joined(
        [
            head,
            element("div", *facts, class_="ngv-facts") if facts else None,
            _failure(rollout.failure) if rollout.failure else None,
            element("div", *tiles, class_="ngv-grid") if tiles else None,
            _folds(rollout),
        ]
    )


def _reward(rollout: Rollout) -> Html:
    if rollout.failure is not None:
        return element("span", f"failed: {rollout.failure.kind}", class_="ngv-reward bad")
    if rollout.reward is None:
        return element("span", "not scored", class_="ngv-reward")
    mood = "good" if rollout.reward >= 1 else "bad" if rollout.reward <= 0 else "mid"
    label = "mean reward" if rollout.kind == "profile" else "reward"
    return element("span", f"{label} {shown(rollout.reward)}", class_=f"ngv-reward {mood}")


def _facts(rollout: Rollout) -> Iterator[tuple[str, str]]:
    usage = rollout.usage
    known = (
        ("agent", rollout.agent),
        ("model", rollout.model),
        ("response", rollout.response_id),
        ("tokens in", _count(usage.get("input_tokens"))),
        ("tokens out", _count(usage.get("output_tokens"))),
    )
    return ((name, value) for name, value in known if value)


def _failure(failure: FailureInfo) -> Html:
    said = [f"at {failure.boundary}" if failure.boundary else ""]
    said.append(f"{failure.attempts} attempts" if failure.attempts is not None else "")
    said.append(f"{failure.elapsed_s:g} s" if failure.elapsed_s is not None else "")
    said.append("" if failure.retryable is None else "worth another try" if failure.retryable else "not retryable")
    said.append("never to be tried again" if failure.terminal else "")
    where = element("span", " · ".join(filter(None, said)), class_="ngv-soft")
    message = element("div", failure.message, class_="ngv-code") if failure.message else None
    return element("div", element("b", failure.kind), " ", where, message, class_="ngv-failure", role="alert")


def _folds(rollout: Rollout) -> Html | None:
    folds = [_field(name, value) for name, value in rollout.extras]
    if rollout.settings:
        folds.append(folded("Sampling params", element("pre", json_text(pretty(rollout.settings)))))
    if rollout.tools:
        tools = [folded(_tool_name(tool), element("pre", json_text(pretty(tool)))) for tool in rollout.tools]
        folds.append(folded(f"Tools ({len(tools)})", *tools))
    return element("div", *folds, class_="ngv-folds") if folds else None


def _field(name: str, value: Any) -> Html:
    """A field of the verifier: beside its name if it is short."""
    text = value if isinstance(value, str) else pretty(value)
    short = len(text) <= _FIELD_SHOWN and "\n" not in text
    summary = joined([f"Metadata - {name}", element("span", text, class_="ngv-code ngv-soft") if short else None])
    return folded(summary, element("pre", text if isinstance(value, str) else json_text(text)))


def _conversation(rollout: Rollout) -> Html:
    if not rollout.blocks:
        return Html("")
    blocks = [block_html(block, f"block-{number}") for number, block in enumerate(rollout.blocks, 1)]
    return joined([element("h2", "Conversation"), *blocks])


def _raw(rollout: Rollout) -> Html:
    text, cut = rollout.raw_json(), 0
    if len(text) > _MOST_INDENTED:
        text = rollout.compact_json()
        text, cut = text[:_MOST_RAW], max(len(text) - _MOST_RAW, 0)
    button = element("button", "Copy", type="button", class_="ngv-copy", data_ngv_copy=True)
    note = element("p", f"{cut:,} more characters are in the file.", class_="ngv-soft") if cut else None
    return folded("Raw JSON", element("div", button, element("pre", json_text(text)), class_="ngv-raw"), note)


def _call(call: ModelCall) -> list[str]:
    failed = call.error is not None or (call.status_code or 0) >= 400
    status = " ".join(filter(None, [str(call.status_code or ""), call.error]))
    return [
        str(call.number),
        call.model or "",
        element("span", status, class_=f"ngv-badge {'bad' if failed else 'good'}") if status else "",
        _milliseconds(call.latency_ms),
        _milliseconds(call.ttft_ms),
        _count(call.input_tokens) or "",
        _count(call.cached_tokens) or "",
        _count(call.output_tokens) or "",
        _count(call.reasoning_tokens) or "",
    ]


def _tile(name: str, value: str) -> Html:
    return element("div", element("b", value), element("span", name), class_="ngv-tile")


def _number(value: float) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else shown(value)


def _milliseconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f} ms" if value < 1000 else f"{value / 1000:.1f} s"


def _count(value: Any) -> str | None:
    return f"{value:,}" if type(value) is int else None


def _tool_name(tool: dict[str, Any]) -> str:
    named = tool.get("name") or tool.get("type")
    return named if isinstance(named, str) else "tool"
