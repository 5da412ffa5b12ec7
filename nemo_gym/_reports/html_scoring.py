# SPDX-License-Identifier: Apache-2.0
"""Why a rollout has its reward, as HTML: target beside answer, expected calls beside those made, the verdict."""

from collections.abc import Sequence
from typing import Any

from nemo_gym._reports.conversation import format_json
from nemo_gym._reports.html_elements import Html, element, fold, join, render_json, soft, tile
from nemo_gym._reports.rollout import Rollout
from nemo_gym._reports.scoring import Scoring, ToolCall
from nemo_gym._results.metric_rows import number_text

_MOST_CHARACTERS = 700
_MOST_FIELD_CHARACTERS = 100


def render_scoring(rollout: Rollout) -> Html | None:
    """Render what is known of the score; None for a row that says nothing about it."""
    scoring = rollout.scoring
    parts = [_render_calls(scoring, rollout.is_played), _render_target_and_answer(scoring, rollout.is_played)]
    if scoring.components:
        heading = element("h3", "Numbers of the verifier" if scoring.is_task_known else "Numbers of the row")
        tiles = [tile(_format_number(value), name) for name, value in scoring.components]
        parts.append(join([heading, element("div", *tiles, class_="ngv-grid")]))
    if scoring.verdict:
        heading = element("h3", "The verifier said" if scoring.is_task_known else "Other fields of the row")
        fields = [render_field(name, value) for name, value in scoring.verdict]
        parts.append(join([heading, element("div", *fields, class_="ngv-folds")]))
    if not any(parts):
        return None
    is_scored = rollout.outcome == "scored" and rollout.is_played
    heading = element("h2", "Why this score" if is_scored else "What is expected")
    return element("section", heading, *parts, class_="ngv-why")


def render_field(name: str, value: Any) -> Html:
    """Render a value beside its name if it is short, behind it if not."""
    text = value if isinstance(value, str) else format_json(value)
    if len(text) <= _MOST_FIELD_CHARACTERS and "\n" not in text:
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
        nothing = soft("The model gave no answer in the end.")
        answer = nothing if scoring.answer is None else _render_text(scoring.answer)
        sides.append(element("div", element("h3", "Answer"), answer, class_="ngv-side ngv-answer"))
    return element("div", *sides, class_="ngv-sides")


def _render_calls(scoring: Scoring, is_played: bool) -> Html | None:
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
    if len(text) <= _MOST_CHARACTERS + _MOST_CHARACTERS // 3:
        return element("div", render_json(text) if is_json else text, class_=classes)
    start = element("div", f"{text[:_MOST_CHARACTERS]}…", class_=classes)
    return join([start, soft(f"{len(text):,} characters; the whole is below.")])


def _shorten_value(value: Any) -> str:
    text = value if isinstance(value, str) else format_json(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _format_number(value: float) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else number_text(value)
