# SPDX-License-Identifier: Apache-2.0
"""A rollout as HTML, for the viewer's page and for reports alike.

What a model, a tool or a dataset wrote is always shown as the text it is. The other pieces of a page come from the
modules beside this one and are named here, so that there is one place to import them from.
"""

from collections.abc import Iterator
from typing import Any

from nemo_gym._reports.conversation import Block, ModelCall, pretty
from nemo_gym._reports.html_elements import Html, element, folded, joined, json_text, table
from nemo_gym._reports.html_scoring import scoring_html, task_fields_html
from nemo_gym._reports.rollout import FailureInfo, Rollout
from nemo_gym._reports.tokens import TOKEN_LIMIT, tokens_html
from nemo_gym._results.metric_rows import number_text as shown

# Indenting puts every token id on a line of its own: beyond this the row is shown as it stands in the file.
_MOST_INDENTED = 1 << 20
_MOST_RAW = 1 << 22
_FIRST_NUMBER = 4
"""The columns of the table of calls from here on are numbers."""
_NOT_RECORDED = "not recorded"
_CAPTURE = "++observability_enabled=true ++model_call_capture_dir=/absolute/folder"
_CUT_OFF = {"max_steps": "cut off at the most steps that its agent takes", "length": "cut off at the longest output"}


def rollout_html(rollout: Rollout, *, token_limit: int = TOKEN_LIMIT) -> str:
    """Everything about a rollout."""
    tokens = None
    if rollout.tokens is not None:
        tokens = folded(
            f"Tokens ({len(rollout.tokens.tokens):,})", element("div", tokens_html(rollout.tokens, token_limit))
        )
    after = [_calls(rollout), element("div", *_folds(rollout), tokens, _raw(rollout), class_="ngv-folds")]
    return element("div", _header(rollout), scoring_html(rollout), *_conversation(rollout), *after, class_="ngv")


def _calls(rollout: Rollout) -> Html | None:
    """The calls to the model; for a rollout without captured calls, what is known of them together."""
    if rollout.kind not in ("rollouts", "failures"):
        return None
    heading = element("h2", "Model calls")
    if not rollout.calls:
        usage = rollout.usage
        known = (("tokens in", _count(usage.get("input_tokens"))), ("tokens out", _count(usage.get("output_tokens"))))
        said = [f"{name} {value or _NOT_RECORDED}" for name, value in known]
        said += [f"finish {rollout.finish_reason or _NOT_RECORDED}", f"time {_NOT_RECORDED}"]
        together = element("p", f"Not recorded one by one. Together: {', '.join(said)}.", class_="ngv-soft")
        return joined(
            [
                heading,
                together,
                element("p", "To record them, add ", element("code", _CAPTURE), " to the run.", class_="ngv-soft"),
            ]
        )
    names = [
        "call",
        "model",
        "status",
        "finish",
        "time",
        "first byte",
        "tokens in",
        "cached",
        "tokens out",
        "reasoning",
    ]
    rows = [_call(call) for call in rollout.calls]
    always = ("call", "status", "finish", "time", "tokens in", "tokens out")
    told = [place for place, name in enumerate(names) if name in always or any(row[place] for row in rows)]
    numbers = [column for column, place in enumerate(told) if place >= _FIRST_NUMBER]
    missing = element("span", _NOT_RECORDED, class_="ngv-soft")
    shown_rows = [[row[place] or missing for place in told] for row in rows]
    return joined([heading, table([names[place] for place in told], shown_rows, numbers=numbers)])


def _header(rollout: Rollout) -> Html:
    head = element("div", element("h1", rollout.title), _reward(rollout), *_troubles(rollout), class_="ngv-head")
    facts = [element("span", f"{name} ", element("b", value)) for name, value in _facts(rollout)]
    return joined(
        [
            head,
            element("div", *facts, class_="ngv-facts") if facts else None,
            _failure(rollout.failure) if rollout.failure else None,
            _cut_off(rollout) if rollout.cut_off else None,
            _tool_errors(rollout) if rollout.tool_errors else None,
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


def _troubles(rollout: Rollout) -> Iterator[Html]:
    if rollout.cut_off:
        yield element("span", f"cut off: {rollout.cut_off}", class_="ngv-reward mid")
    if n := len(rollout.tool_errors):
        yield element("span", "1 crashed tool call" if n == 1 else f"{n} crashed tool calls", class_="ngv-reward bad")


def _cut_off(rollout: Rollout) -> Html:
    said = _CUT_OFF.get(rollout.cut_off, f"cut off ({rollout.cut_off})")
    return element("p", f"This rollout did not end by itself: it was {said}.", class_="ngv-warning", role="alert")


def _tool_errors(rollout: Rollout) -> Html:
    lines = [
        element(
            "div", element("b", error.tool), f" crashed with status {error.status}: ", element("span", error.message)
        )
        for error in rollout.tool_errors
    ]
    return element("div", *lines, class_="ngv-failure", role="alert")


def _facts(rollout: Rollout) -> Iterator[tuple[str, str]]:
    usage, played = rollout.usage, rollout.kind in ("rollouts", "failures")
    unknown = _NOT_RECORDED if played else None
    finish = f"cut off ({rollout.cut_off})" if rollout.cut_off else rollout.finish_reason or unknown
    times = [call.latency_ms for call in rollout.calls if call.latency_ms is not None]
    known = (
        ("agent", rollout.agent),
        ("model", rollout.model),
        ("finish", finish),
        ("time in model calls", _milliseconds(sum(times)) if times else unknown),
        ("tokens in", _count(usage.get("input_tokens")) or unknown),
        ("tokens out", _count(usage.get("output_tokens")) or unknown),
        ("response", rollout.response_id),
    )
    return ((name, value) for name, value in known if value)


def _failure(failure: FailureInfo) -> Html:
    said = [f"at {failure.boundary}" if failure.boundary else ""]
    attempts = "1 attempt" if failure.attempts == 1 else f"{failure.attempts} attempts"
    said.append(attempts if failure.attempts is not None else "")
    said.append(f"{failure.elapsed_s:g} s" if failure.elapsed_s is not None else "")
    said.append("" if failure.retryable is None else "worth another try" if failure.retryable else "not retryable")
    said.append("never to be tried again" if failure.terminal else "")
    where = element("span", " · ".join(filter(None, said)), class_="ngv-soft")
    message = element("div", failure.message, class_="ngv-code") if failure.message else None
    return element("div", element("b", failure.kind), " ", where, message, class_="ngv-failure", role="alert")


def _folds(rollout: Rollout) -> Iterator[Html | None]:
    yield task_fields_html(rollout.scoring.task_fields)
    if rollout.settings:
        yield folded("Sampling params", element("pre", json_text(pretty(rollout.settings))))
    if rollout.tools:
        tools = [folded(_tool_name(tool), element("pre", json_text(pretty(tool)))) for tool in rollout.tools]
        yield folded(f"Tools ({len(tools)})", *tools)


def _conversation(rollout: Rollout) -> Iterator[Html]:
    """What the model was given, and what came of it; a reader must not take one for the other."""
    numbered = list(enumerate(rollout.blocks, 1))
    given = [(number, block) for number, block in numbered if not block.generated]
    made = [(number, block) for number, block in numbered if block.generated]
    until = "What was said until then" if rollout.failure else "What the model did"
    for heading, name, blocks in (("Prompt", "ngv-given", given), (until, "ngv-made", made)):
        if blocks:
            yield element("h2", heading)
            yield element("div", *(block_html(block, f"block-{number}") for number, block in blocks), class_=name)
    if not made and rollout.kind in ("rollouts", "failures"):
        note = "What the model said until then was not recorded." if rollout.failure else "The response holds nothing."
        yield joined([element("h2", until), element("p", note, class_="ngv-soft")])


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
        call.finish_reason or "",
        _milliseconds(call.latency_ms),
        _milliseconds(call.ttft_ms),
        _count(call.input_tokens) or "",
        _count(call.cached_tokens) or "",
        _count(call.output_tokens) or "",
        _count(call.reasoning_tokens) or "",
    ]


def _milliseconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f} ms" if value < 1000 else f"{value / 1000:.1f} s"


def _count(value: Any) -> str | None:
    return f"{value:,}" if type(value) is int else None


def _tool_name(tool: dict[str, Any]) -> str:
    named = tool.get("name") or tool.get("type")
    return named if isinstance(named, str) else "tool"


_SHOWN = 3000
# Beyond this nobody reads on a page, and the page would become slow.
_MOST = 200_000
_PEEK = 140


def block_html(block: Block, anchor: str | None = None, *, mark: int | None = None, opened: bool = False) -> Html:
    """A block; `mark` is the character where it begins to differ from another, `opened` unfolds a thought."""
    classes = f"ngv-block ngv-{block.kind}" + ("" if block.text or block.images else " empty")
    # A turn of an example looks like the model's own, but was put into its mouth.
    is_example = not block.generated and block.kind in ("assistant", "reasoning", "tool_call", "tool_output")
    heading = [element("span", block.title, class_="ngv-role", title=block.call_id)]
    if block.kind == "tool_output" and block.name:
        heading.append(element("span", block.name, class_="ngv-title"))
    if is_example:
        heading.append(element("span", "given, not generated", class_="ngv-badge"))
    if block.error:
        heading.append(element("span", block.error, class_="ngv-badge bad"))
    if note := _note(block):
        heading.append(element("span", note, class_="ngv-note"))
    classes += (" given" if is_example else "") + (" crashed" if block.error else "")
    body = [*_text(block, mark), *(element("img", src=image, alt="a picture in the row") for image in block.images)]
    if block.kind == "reasoning":
        heading.append(element("span", _peek(block.text), class_="ngv-peek"))
        return element("details", element("summary", *heading), *body, class_=classes, id=anchor, open=opened)
    return element("section", element("header", *heading), *body, class_=classes, id=anchor)


def _note(block: Block) -> str:
    status = "" if block.status == "completed" else block.status or ""
    return " · ".join(filter(None, [status, f"{block.n_tokens:,} tokens" if block.n_tokens is not None else ""]))


def _peek(text: str) -> str:
    line = " ".join(text[: 4 * _PEEK].split())
    return line if len(line) <= _PEEK else f"{line[: _PEEK - 1]}…"


def _text(block: Block, mark: int | None) -> list[Html]:
    """The text, in two parts where it is long: the second is folded."""
    text, cut = block.text[:_MOST], len(block.text) - _MOST
    at = len(text) if len(text) <= _SHOWN + _SHOWN // 3 else _break(text)
    parts = [_part(block, text[:at], mark)]
    if at < len(text):
        later = mark is not None and mark >= at
        rest = _part(block, text[at:], mark - at if later and mark is not None else None)
        label = f"Show {len(text) - at:,} more characters"
        parts.append(folded(label, rest, opened=later, class_="ngv-more"))
    if cut > 0:
        parts.append(element("p", f"{cut:,} more characters are in the raw JSON.", class_="ngv-text ngv-soft"))
    return parts


def _break(text: str) -> int:
    """A good place to cut: the end of a line near the limit, if there is one."""
    return max(text.rfind("\n", _SHOWN - _SHOWN // 3, _SHOWN) + 1, 0) or _SHOWN


def _part(block: Block, text: str, mark: int | None) -> Html:
    classes = "ngv-text ngv-code" if block.is_json or block.kind in ("tool_call", "tool_output") else "ngv-text"
    if mark is not None and 0 <= mark <= len(text):
        rest = text[mark:]
        # Where one text is the beginning of the other, the place is marked by itself.
        marked = element("mark", rest[:1] if rest else "⌁", class_="ngv-here")
        return element("div", joined([text[:mark], marked, rest[1:]]), class_=classes)
    return element("div", json_text(text) if block.is_json else text, class_=classes)
