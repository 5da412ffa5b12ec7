# SPDX-License-Identifier: Apache-2.0
"""Why a rollout has its reward, as HTML: target beside answer, expected calls beside those made, the verdict."""

from collections.abc import Sequence
from typing import Any

from nemo_gym._reports.conversation import pretty
from nemo_gym._reports.html_elements import Html, element, folded, joined, json_text
from nemo_gym._reports.rollout import Rollout
from nemo_gym._reports.scoring import Field, Scoring, ToolCall
from nemo_gym._results.metric_rows import number_text as shown

_TEXT_SHOWN = 700
_FIELD_SHOWN = 100


def scoring_html(rollout: Rollout) -> Html | None:
    """None for a row that says nothing about its score."""
    scoring = rollout.scoring
    is_played = rollout.kind in ("rollouts", "failures")
    parts = [_calls(scoring, is_played), _target_and_answer(scoring, is_played), _components(scoring)]
    if scoring.verdict:
        heading = "The verifier said" if scoring.is_task_known else "Other fields of the row"
        fields = [_field(name, value) for name, value in scoring.verdict]
        parts.append(joined([element("h3", heading), element("div", *fields, class_="ngv-folds")]))
    if not any(parts):
        return None
    heading = element("h2", "Why this score" if rollout.outcome == "scored" and is_played else "What is expected")
    return element("section", heading, *parts, class_="ngv-why")


def task_fields_html(fields: Sequence[Field]) -> Html | None:
    """The other fields of the task, behind a line; None if there are none."""
    if not fields:
        return None
    return folded(f"Task fields ({len(fields)})", *(_field(name, value) for name, value in fields))


def _target_and_answer(scoring: Scoring, is_played: bool) -> Html | None:
    if not scoring.targets and not (is_played and scoring.answer is not None):
        return None
    targets = [joined([element("code", name), _text(value)]) for name, value in scoring.targets]
    nothing = element("p", "Neither the row nor its task names a target.", class_="ngv-soft")
    sides = []
    if targets or not scoring.expected_calls:
        sides.append(element("div", element("h3", "Target"), *(targets or [nothing]), class_="ngv-side"))
    if is_played:
        said = element("p", "The model gave no answer in the end.", class_="ngv-soft")
        answer = said if scoring.answer is None else _text(scoring.answer)
        sides.append(element("div", element("h3", "Answer"), answer, class_="ngv-side ngv-answer"))
    return element("div", *sides, class_="ngv-sides")


def _calls(scoring: Scoring, is_played: bool) -> Html | None:
    if not scoring.expected_calls:
        return None
    expected = _call_list("Expected calls", scoring.expected_calls, "made", "not made like this")
    if not is_played:
        return element("div", _call_list("Expected calls", scoring.expected_calls), class_="ngv-sides")
    made = _call_list("Calls made", scoring.made_calls, "as expected", "not expected")
    return element("div", expected, made, class_="ngv-sides")


def _call_list(heading: str, calls: Sequence[ToolCall], matched: str = "", other: str = "") -> Html:
    lines = [_call(call, matched, other) for call in calls]
    nothing = element("p", "None.", class_="ngv-soft")
    return element("div", element("h3", heading), *(lines or [nothing]), class_="ngv-side")


def _call(call: ToolCall, matched: str, other: str) -> Html:
    said = matched if call.matched else other
    badge = element("span", said, class_=f"ngv-badge {'good' if call.matched else 'mid'}") if said else None
    given = call.arguments
    if isinstance(given, dict):
        arguments = [element("div", element("i", f"{name} "), _compact(value)) for name, value in given.items()]
    else:
        arguments = [element("div", _compact(given))] if given is not None else []
    name = element("div", element("b", call.name), " ", badge, class_="ngv-call-name")
    return element("div", name, element("div", *arguments, class_="ngv-code"), class_="ngv-call")


def _components(scoring: Scoring) -> Html | None:
    tiles = [
        element("div", element("b", _number(value)), element("span", name), class_="ngv-tile")
        for name, value in scoring.components
    ]
    if not tiles:
        return None
    heading = "Numbers of the verifier" if scoring.is_task_known else "Numbers of the row"
    return joined([element("h3", heading), element("div", *tiles, class_="ngv-grid")])


def _field(name: str, value: Any) -> Html:
    """Beside its name if it is short, behind it if not."""
    text = value if isinstance(value, str) else pretty(value)
    if len(text) <= _FIELD_SHOWN and "\n" not in text:
        return element(
            "div", element("b", name), element("span", text or "(empty)", class_="ngv-code"), class_="ngv-field"
        )
    return folded(name, element("pre", text if isinstance(value, str) else json_text(text)))


def _text(value: Any) -> Html:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    text, is_json = (value, False) if isinstance(value, str) else (pretty(value), True)
    classes = "ngv-text ngv-code" if is_json else "ngv-text"
    if not text:
        return element("p", "(empty)", class_="ngv-soft")
    if len(text) <= _TEXT_SHOWN + _TEXT_SHOWN // 3:
        return element("div", json_text(text) if is_json else text, class_=classes)
    start = element("div", f"{text[:_TEXT_SHOWN]}…", class_=classes)
    whole = element("p", f"{len(text):,} characters; the whole is below.", class_="ngv-soft")
    return joined([start, whole])


def _compact(value: Any) -> str:
    text = value if isinstance(value, str) else pretty(value)
    return text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}…"


def _number(value: float) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else shown(value)
