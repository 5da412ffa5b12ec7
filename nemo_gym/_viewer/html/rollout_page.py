# SPDX-License-Identifier: Apache-2.0
"""A rollout as HTML, for the viewer and for reports: why it has its reward, and what was said.

What a model, a tool or a dataset wrote is always shown as plain text.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from nemo_gym._results.metrics.describe import format_number
from nemo_gym._viewer.files.conversation_blocks import ModelCall, format_json, format_value
from nemo_gym._viewer.files.one_rollout import Rollout
from nemo_gym._viewer.files.reward_explanation import Scoring, ToolCall
from nemo_gym._viewer.html.blocks import render_block
from nemo_gym._viewer.html.elements import (
    Html,
    cut_text,
    element,
    fold,
    format_count,
    join,
    list_classes,
    note_more,
    render_json,
    soft,
    table,
    tile,
)
from nemo_gym._viewer.html.program_panel import render_branches, render_changes, render_program
from nemo_gym._viewer.html.token_panel import render_tokens

# Indenting puts every token id on its own line: beyond this the row is shown as it is in the file.
_MOST_INDENTED = 1 << 20
_MOST_RAW = 1 << 22
_NOT_RECORDED = "not recorded"
_CAPTURE = "++observability_enabled=true ++model_call_capture_dir=/absolute/folder"
_CUT_OFF = {"max_steps": "cut off at the agent's step limit", "length": "cut off at the output length limit"}

_VALUE_SHOWN = 700
_FIELD_SHOWN = 100


def render_rollout(rollout: Rollout) -> Html:
    """Render everything about a rollout."""
    folds = []
    work = rollout.work
    if fields := rollout.scoring.task_fields:
        folds.append(fold(f"Task fields ({len(fields)})", *(_render_field(name, value) for name, value in fields)))
    if rollout.settings:
        folds.append(fold("Sampling params", element("pre", render_json(format_json(rollout.settings)))))
    if rollout.tools:
        names = [str(tool.get("name") or tool.get("type") or "tool") for tool in rollout.tools]
        contents = [element("pre", render_json(format_json(tool))) for tool in rollout.tools]
        tools = map(fold, names, contents)
        folds.append(fold(f"Tools ({len(names)})", *tools))
    if rollout.tokens is not None:
        tokens = element("div", render_tokens(rollout.tokens))
        folds.append(fold(f"Tokens ({len(rollout.tokens.tokens):,})", tokens))
    text = format_json(rollout.row)
    if len(text) > _MOST_INDENTED:
        text = orjson.dumps(rollout.row, option=orjson.OPT_NON_STR_KEYS, default=str).decode()
    button = element("button", "Copy", type="button", class_="ngv-copy", data_ngv_copy=True)
    raw = element("div", button, element("pre", render_json(text[:_MOST_RAW])), class_="ngv-raw")
    folds.append(fold("Raw JSON", raw, note_more(len(text) - _MOST_RAW, "characters are in the file.")))
    parts = [*_render_header(rollout), _render_scoring(rollout)]
    if work is not None and work.changes is not None:
        parts.append(render_changes(work.changes))
    parts += _render_conversation(rollout)
    if work is not None:
        if work.branches:
            parts.append(render_branches(work.branches))
        parts.append(render_program(work, has_failed=rollout.failure is not None))
    if rollout.is_played:
        parts.append(_render_calls(rollout))
    return element("div", *parts, element("div", *folds, class_="ngv-folds"), class_="ngv")


def render_reward(rollout: Rollout) -> Html:
    """Render the reward or the kind of failure, colored by how good it is."""
    if rollout.outcome == "not run":
        return element("span", "not run", class_="ngv-reward")
    if rollout.failure is not None:
        return element("span", f"failed: {rollout.failure.kind}", class_="ngv-reward bad")
    if rollout.reward is None:
        return element("span", "not scored", class_="ngv-reward")
    mood = "mid"
    if rollout.reward >= 1:
        mood = "good"
    elif rollout.reward <= 0:
        mood = "bad"
    label = "mean reward" if rollout.kind == "profile" else "reward"
    return element("span", f"{label} {format_number(rollout.reward)}", class_=f"ngv-reward {mood}")


def _render_header(rollout: Rollout) -> Iterator[Html]:
    badges = [render_reward(rollout)]
    if rollout.cut_off:
        badges.append(element("span", f"cut off: {rollout.cut_off}", class_="ngv-reward mid"))
    if rollout.tool_errors:
        text = format_count(len(rollout.tool_errors), "crashed tool call")
        badges.append(element("span", text, class_="ngv-reward bad"))
    yield element("div", element("h1", rollout.title), *badges, class_="ngv-head")
    unknown = _NOT_RECORDED if rollout.is_played else ""
    finish = rollout.finish_reason
    if rollout.cut_off:
        finish = f"cut off ({rollout.cut_off})"
    times = [call.latency_ms for call in rollout.calls if call.latency_ms is not None]
    known = {
        "agent": rollout.agent,
        "model": rollout.model,
        "finish": finish or unknown,
        "time in model calls": _format_time(sum(times)) if times else unknown,
        "tokens in": _format_int(rollout.usage.get("input_tokens")) or unknown,
        "tokens out": _format_int(rollout.usage.get("output_tokens")) or unknown,
        "response": rollout.response_id,
    }
    facts = [element("span", f"{name} ", element("b", value)) for name, value in known.items() if value]
    if facts:
        yield element("div", *facts, class_="ngv-facts")
    if rollout.outcome == "not run":
        yield element(
            "p", "The run was stopped while this rollout was in flight; `--resume` runs it.", class_="ngv-soft"
        )
    elif failure := rollout.failure:
        said = []
        if failure.boundary:
            said.append(f"at {failure.boundary}")
        if failure.attempts is not None:
            said.append(format_count(failure.attempts, "attempt"))
        if failure.elapsed_s is not None:
            said.append(f"{failure.elapsed_s:g} s")
        if failure.retryable is not None:
            said.append("retryable" if failure.retryable else "not retryable")
        if failure.terminal:
            said.append("never retried")
        parts = [element("b", failure.kind), " ", element("span", " · ".join(said), class_="ngv-soft")]
        if failure.message:
            parts.append(element("div", failure.message, class_="ngv-code"))
        yield element("div", *parts, class_="ngv-failure", role="alert")
    if rollout.cut_off:
        end = _CUT_OFF.get(rollout.cut_off, f"cut off ({rollout.cut_off})")
        yield element("p", f"This rollout did not end normally: it was {end}.", class_="ngv-warning", role="alert")
    if rollout.tool_errors:
        lines = [
            element("div", element("b", one.tool), f" crashed with status {one.status}: ", element("span", one.message))
            for one in rollout.tool_errors
        ]
        yield element("div", *lines, class_="ngv-failure", role="alert")


def _render_conversation(rollout: Rollout) -> Iterator[Html]:
    """Render what the model was given apart from what it produced."""
    numbered = list(enumerate(rollout.blocks, 1))
    given = [(number, block) for number, block in numbered if not block.generated]
    made = [(number, block) for number, block in numbered if block.generated]
    until = "What the model did"
    note = "The response is empty."
    if rollout.failure:
        until = "What was said until then"
        note = "What the model said until then was not recorded."
    for heading, name, blocks in (("Prompt", "ngv-given", given), (until, "ngv-made", made)):
        if blocks:
            yield element("h2", heading)
            yield element("div", *(render_block(block, f"block-{number}") for number, block in blocks), class_=name)
    if not made and rollout.is_played:
        yield join([element("h2", until), soft(note)])


def _render_calls(rollout: Rollout) -> Html:
    """Render the model calls; for a rollout without captured calls, their known totals."""
    heading = element("h2", "Model calls")
    if not rollout.calls:
        said = []
        for direction, name in (("in", "input_tokens"), ("out", "output_tokens")):
            said.append(f"tokens {direction} {_format_int(rollout.usage.get(name)) or _NOT_RECORDED}")
        said += [f"finish {rollout.finish_reason or _NOT_RECORDED}", f"time {_NOT_RECORDED}"]
        together = soft(f"Not recorded one by one. Together: {', '.join(said)}.")
        return join(
            [heading, together, soft(join(["To record them, add ", element("code", _CAPTURE), " to the run."]))]
        )
    rows = [_list_call_cells(call) for call in rollout.calls]
    always = ("call", "status", "finish", "time", "tokens in", "tokens out")
    names = [name for name in rows[0] if name in always or any(row[name] for row in rows)]
    words = ("call", "model", "status", "finish")
    numbers = [column for column, name in enumerate(names) if name not in words]
    missing = element("span", _NOT_RECORDED, class_="ngv-soft")
    return join([heading, table(names, [[row[name] or missing for name in names] for row in rows], numbers=numbers)])


def _list_call_cells(call: ModelCall) -> dict[str, str]:
    status = " ".join(filter(None, [str(call.status_code or ""), call.error]))
    if status:
        failed = call.error is not None or (call.status_code or 0) >= 400
        status = element("span", status, class_=f"ngv-badge {'bad' if failed else 'good'}")
    return {
        "call": str(call.number),
        "model": call.model or "",
        "status": status,
        "finish": call.finish_reason or "",
        "time": _format_time(call.latency_ms),
        "first byte": _format_time(call.ttft_ms),
        "tokens in": _format_int(call.input_tokens),
        "cached": _format_int(call.cached_tokens),
        "tokens out": _format_int(call.output_tokens),
        "reasoning": _format_int(call.reasoning_tokens),
    }


def _format_time(ms: float | None) -> str:
    if ms is None:
        return ""
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def _format_int(value: Any) -> str:
    return f"{value:,}" if type(value) is int else ""


# --- why it has its reward --------------------------------------------------------------------------------------------


def _render_scoring(rollout: Rollout) -> Html | None:
    """Render what is known about the score; None for a row that says nothing about it."""
    scoring = rollout.scoring
    parts = [_render_tool_calls(scoring, rollout.is_played), _render_target_and_answer(scoring, rollout.is_played)]
    numbers = "Numbers in the row"
    others = "Other fields of the row"
    if scoring.is_task_known:
        numbers = "Scores from the verifier"
        others = "The verifier said"
    if scoring.components:
        tiles = [tile(_format_component(value), name) for name, value in scoring.components]
        parts += [element("h3", numbers), element("div", *tiles, class_="ngv-grid")]
    if scoring.verdict:
        fields = [_render_field(name, value) for name, value in scoring.verdict]
        parts += [element("h3", others), element("div", *fields, class_="ngv-folds")]
    if not any(parts):
        return None
    heading = "What is expected"
    if rollout.outcome == "scored" and rollout.is_played:
        heading = "Why this score"
    return element("section", element("h2", heading), *parts, class_="ngv-why")


def _format_component(value: float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format_number(value)


def _render_field(name: str, value: Any) -> Html:
    """Render a value beside its name if it is short, else folded behind it."""
    text = format_value(value)
    if len(text) <= _FIELD_SHOWN and "\n" not in text:
        shown = element("span", text or "(empty)", class_="ngv-code")
        return element("div", element("b", name), shown, class_="ngv-field")
    return fold(name, element("pre", _color_value(value, text)))


def _render_target_and_answer(scoring: Scoring, is_played: bool) -> Html | None:
    if not scoring.targets and not (is_played and scoring.answer is not None):
        return None
    sides = []
    if scoring.targets or not scoring.expected_calls:
        targets = [join([element("code", name), _render_text(value)]) for name, value in scoring.targets]
        targets = targets or [soft("Neither the row nor its task names a target.")]
        sides.append(element("div", element("h3", "Target"), *targets, class_="ngv-side"))
    if is_played:
        answer = soft("The model gave no final answer.")
        if scoring.answer is not None:
            answer = _render_text(scoring.answer)
        sides.append(element("div", element("h3", "Answer"), answer, class_="ngv-side ngv-answer"))
    return element("div", *sides, class_="ngv-sides")


def _render_tool_calls(scoring: Scoring, is_played: bool) -> Html | None:
    expected = scoring.expected_calls
    if not expected:
        return None
    if not is_played:
        return element("div", _render_call_list("Expected calls", expected, "", ""), class_="ngv-sides")
    left = _render_call_list("Expected calls", expected, "made", "not made like this")
    right = _render_call_list("Calls made", scoring.made_calls, "as expected", "not expected")
    return element("div", left, right, class_="ngv-sides")


def _render_call_list(heading: str, calls: Sequence[ToolCall], matched: str, other: str) -> Html:
    lines = [_render_call(call, matched if call.matched else other) for call in calls] or [soft("None.")]
    return element("div", element("h3", heading), *lines, class_="ngv-side")


def _render_call(call: ToolCall, said: str) -> Html:
    title = [element("b", call.name), " "]
    if said:
        title.append(element("span", said, class_=f"ngv-badge {'good' if call.matched else 'mid'}"))
    arguments = []
    if isinstance(call.arguments, dict):
        for name, value in call.arguments.items():
            arguments.append(element("div", element("i", f"{name} "), cut_text(format_value(value), _VALUE_SHOWN)))
    elif call.arguments is not None:
        arguments.append(element("div", cut_text(format_value(call.arguments), _VALUE_SHOWN)))
    heading = element("div", *title, class_="ngv-call-name")
    return element("div", heading, element("div", *arguments, class_="ngv-code"), class_="ngv-call")


def _render_text(value: Any) -> Html:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    text = format_value(value)
    if not text:
        return soft("(empty)")
    classes = list_classes("ngv-text", **{"ngv-code": not isinstance(value, str)})
    if len(text) <= _VALUE_SHOWN + _VALUE_SHOWN // 3:
        return element("div", _color_value(value, text), class_=classes)
    start = element("div", cut_text(text, _VALUE_SHOWN), class_=classes)
    return join([start, soft(f"{len(text):,} characters; the full text is below.")])


def _color_value(value: Any, text: str) -> str:
    """Return the `text` of a value, colored unless the value is itself a text."""
    return text if isinstance(value, str) else render_json(text)
