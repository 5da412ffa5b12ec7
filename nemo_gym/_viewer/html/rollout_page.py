# SPDX-License-Identifier: Apache-2.0
"""A rollout as HTML, for the viewer and for reports: why it has its reward, and what was said.

What a model, a tool or a dataset wrote is always shown as plain text.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from nemo_gym._results.metrics.describe import format_number
from nemo_gym._viewer.files.conversation_blocks import ModelCall, format_json
from nemo_gym._viewer.files.one_rollout import Rollout
from nemo_gym._viewer.files.reward_explanation import Scoring, ToolCall
from nemo_gym._viewer.html.blocks import render_block
from nemo_gym._viewer.html.elements import Html, element, fold, join, render_json, soft, table, tile
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
    cut = 0
    if len(text) > _MOST_INDENTED:
        text = orjson.dumps(rollout.row, option=orjson.OPT_NON_STR_KEYS, default=str).decode()
        text, cut = text[:_MOST_RAW], max(len(text) - _MOST_RAW, 0)
    button = element("button", "Copy", type="button", class_="ngv-copy", data_ngv_copy=True)
    note = soft(f"{cut:,} more characters are in the file.") if cut else None
    raw = element("div", button, element("pre", render_json(text)), class_="ngv-raw")
    folds.append(fold("Raw JSON", raw, note))
    return element(
        "div",
        *_render_header(rollout),
        _render_scoring(rollout),
        render_changes(work.changes) if work is not None and work.changes is not None else None,
        *_render_conversation(rollout),
        render_branches(work.branches) if work is not None and work.branches else None,
        render_program(work, has_failed=rollout.failure is not None) if work is not None else None,
        _render_calls(rollout) if rollout.is_played else None,
        element("div", *folds, class_="ngv-folds"),
        class_="ngv",
    )


def render_reward(rollout: Rollout) -> Html:
    """Render the reward or the kind of failure, colored by how good it is."""
    if rollout.outcome == "not run":
        return element("span", "not run", class_="ngv-reward")
    if rollout.failure is not None:
        return element("span", f"failed: {rollout.failure.kind}", class_="ngv-reward bad")
    if rollout.reward is None:
        return element("span", "not scored", class_="ngv-reward")
    mood = "good" if rollout.reward >= 1 else "bad" if rollout.reward <= 0 else "mid"
    label = "mean reward" if rollout.kind == "profile" else "reward"
    return element("span", f"{label} {format_number(rollout.reward)}", class_=f"ngv-reward {mood}")


def _render_header(rollout: Rollout) -> Iterator[Html]:
    badges = [render_reward(rollout)]
    if rollout.cut_off:
        badges.append(element("span", f"cut off: {rollout.cut_off}", class_="ngv-reward mid"))
    if n := len(rollout.tool_errors):
        text = "1 crashed tool call" if n == 1 else f"{n} crashed tool calls"
        badges.append(element("span", text, class_="ngv-reward bad"))
    yield element("div", element("h1", rollout.title), *badges, class_="ngv-head")
    usage = rollout.usage
    unknown = _NOT_RECORDED if rollout.is_played else ""
    times = [call.latency_ms for call in rollout.calls if call.latency_ms is not None]
    known = {
        "agent": rollout.agent,
        "model": rollout.model,
        "finish": f"cut off ({rollout.cut_off})" if rollout.cut_off else rollout.finish_reason or unknown,
        "time in model calls": _format_time(sum(times)) if times else unknown,
        "tokens in": _format_count(usage.get("input_tokens")) or unknown,
        "tokens out": _format_count(usage.get("output_tokens")) or unknown,
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
        said = [f"at {failure.boundary}" if failure.boundary else ""]
        if failure.attempts is not None:
            said.append("1 attempt" if failure.attempts == 1 else f"{failure.attempts} attempts")
        said.append(f"{failure.elapsed_s:g} s" if failure.elapsed_s is not None else "")
        said.append("" if failure.retryable is None else "retryable" if failure.retryable else "not retryable")
        said.append("never retried" if failure.terminal else "")
        where = element("span", " · ".join(filter(None, said)), class_="ngv-soft")
        message = element("div", failure.message, class_="ngv-code") if failure.message else None
        yield element("div", element("b", failure.kind), " ", where, message, class_="ngv-failure", role="alert")
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
    """Render what the model was given and what it produced, so that a reader cannot confuse the two."""
    numbered = list(enumerate(rollout.blocks, 1))
    given = [(number, block) for number, block in numbered if not block.generated]
    made = [(number, block) for number, block in numbered if block.generated]
    until = "What was said until then" if rollout.failure else "What the model did"
    for heading, name, blocks in (("Prompt", "ngv-given", given), (until, "ngv-made", made)):
        if blocks:
            yield element("h2", heading)
            yield element("div", *(render_block(block, f"block-{number}") for number, block in blocks), class_=name)
    if not made and rollout.is_played:
        note = "What the model said until then was not recorded." if rollout.failure else "The response is empty."
        yield join([element("h2", until), soft(note)])


def _render_calls(rollout: Rollout) -> Html:
    """Render the model calls; for a rollout without captured calls, their known totals."""
    heading = element("h2", "Model calls")
    if not rollout.calls:
        usage = rollout.usage
        known = (("in", _format_count(usage.get("input_tokens"))), ("out", _format_count(usage.get("output_tokens"))))
        said = [f"tokens {name} {value or _NOT_RECORDED}" for name, value in known]
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
    failed = call.error is not None or (call.status_code or 0) >= 400
    status = " ".join(filter(None, [str(call.status_code or ""), call.error]))
    return {
        "call": str(call.number),
        "model": call.model or "",
        "status": element("span", status, class_=f"ngv-badge {'bad' if failed else 'good'}") if status else "",
        "finish": call.finish_reason or "",
        "time": _format_time(call.latency_ms),
        "first byte": _format_time(call.ttft_ms),
        "tokens in": _format_count(call.input_tokens),
        "cached": _format_count(call.cached_tokens),
        "tokens out": _format_count(call.output_tokens),
        "reasoning": _format_count(call.reasoning_tokens),
    }


def _format_time(ms: float | None) -> str:
    if ms is None:
        return ""
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def _format_count(value: Any) -> str:
    return f"{value:,}" if type(value) is int else ""


# --- why it has its reward --------------------------------------------------------------------------------------------


def _render_scoring(rollout: Rollout) -> Html | None:
    """Render what is known about the score; None for a row that says nothing about it."""
    scoring = rollout.scoring
    parts = [_render_tool_calls(scoring, rollout.is_played), _render_target_and_answer(scoring, rollout.is_played)]
    if scoring.components:
        heading = element("h3", "Scores from the verifier" if scoring.is_task_known else "Numbers in the row")
        tiles = [
            tile(("yes" if value else "no") if isinstance(value, bool) else format_number(value), name)
            for name, value in scoring.components
        ]
        parts.append(join([heading, element("div", *tiles, class_="ngv-grid")]))
    if scoring.verdict:
        heading = element("h3", "The verifier said" if scoring.is_task_known else "Other fields of the row")
        fields = [_render_field(name, value) for name, value in scoring.verdict]
        parts.append(join([heading, element("div", *fields, class_="ngv-folds")]))
    if not any(parts):
        return None
    is_scored = rollout.outcome == "scored" and rollout.is_played
    heading = element("h2", "Why this score" if is_scored else "What is expected")
    return element("section", heading, *parts, class_="ngv-why")


def _render_field(name: str, value: Any) -> Html:
    """Render a value beside its name if it is short, else folded behind it."""
    text = value if isinstance(value, str) else format_json(value)
    if len(text) <= _FIELD_SHOWN and "\n" not in text:
        shown = element("span", text or "(empty)", class_="ngv-code")
        return element("div", element("b", name), shown, class_="ngv-field")
    return fold(name, element("pre", text if isinstance(value, str) else render_json(text)))


def _render_target_and_answer(scoring: Scoring, is_played: bool) -> Html | None:
    if not scoring.targets and not (is_played and scoring.answer is not None):
        return None
    sides = []
    if scoring.targets or not scoring.expected_calls:
        targets = [join([element("code", name), _render_text(value)]) for name, value in scoring.targets]
        targets = targets or [soft("Neither the row nor its task names a target.")]
        sides.append(element("div", element("h3", "Target"), *targets, class_="ngv-side"))
    if is_played:
        nothing = soft("The model gave no final answer.")
        answer = nothing if scoring.answer is None else _render_text(scoring.answer)
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
    badge = element("span", said, class_=f"ngv-badge {'good' if call.matched else 'mid'}") if said else None
    given = call.arguments
    if isinstance(given, dict):
        arguments = [element("div", element("i", f"{name} "), _shorten_value(value)) for name, value in given.items()]
    else:
        arguments = [element("div", _shorten_value(given))] if given is not None else []
    name = element("div", element("b", call.name), " ", badge, class_="ngv-call-name")
    return element("div", name, element("div", *arguments, class_="ngv-code"), class_="ngv-call")


def _render_text(value: Any) -> Html:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    text, is_json = (value, False) if isinstance(value, str) else (format_json(value), True)
    classes = "ngv-text ngv-code" if is_json else "ngv-text"
    if not text:
        return soft("(empty)")
    if len(text) <= _VALUE_SHOWN + _VALUE_SHOWN // 3:
        return element("div", render_json(text) if is_json else text, class_=classes)
    start = element("div", f"{text[:_VALUE_SHOWN]}…", class_=classes)
    return join([start, soft(f"{len(text):,} characters; the full text is below.")])


def _shorten_value(value: Any) -> str:
    text = value if isinstance(value, str) else format_json(value)
    return text if len(text) <= _VALUE_SHOWN else f"{text[:_VALUE_SHOWN]}…"
