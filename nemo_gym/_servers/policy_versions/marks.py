# SPDX-License-Identifier: Apache-2.0
"""Policy versions of a model's output: marked on its answers, and collected for the row of a rollout.

`policy_version` is the version in force when a call began; `policy_version_end`, only if it differs, the version when
it ended: a trainer may have changed the weights during the call. Both are on the answer, and on every part of it that
carries tokens, because agents keep parts of many answers. If nobody announced a version, nothing is changed.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from nemo_gym._util.json_shapes import as_mapping
from nemo_gym._wire.schema.tokens import TokenIDLogProbMixin, has_token_fields

POLICY_VERSION_FIELD = "policy_version"
POLICY_VERSION_END_FIELD = "policy_version_end"


def mark_answer(answer: Any, began: int | None, ended: int | None) -> Any:
    """Return the answer of a model, Responses or Chat Completions, with the versions in force.

    A call that began before the first announcement has no version. What is neither a model nor a mapping, such as a
    finished HTTP response, is returned unchanged.
    """
    if began is None or not isinstance(answer, BaseModel | Mapping):
        return answer
    marks = {POLICY_VERSION_FIELD: began}
    if ended != began and ended is not None:
        marks[POLICY_VERSION_END_FIELD] = ended
    return _update(answer, {**_mark_parts(answer, marks), **marks})


def _mark_parts(answer: Any, marks: Mapping[str, int]) -> dict[str, Any]:
    """Return the fields of `answer` that hold parts with tokens, with the parts marked."""
    output = _get(answer, "output")
    choices = _get(answer, "choices")
    if isinstance(output, list) and any(map(_has_tokens, output)):
        return {"output": [_update(item, marks) if _has_tokens(item) else item for item in output]}
    if isinstance(choices, list) and any(_has_tokens(_get(choice, "message")) for choice in choices):
        return {"choices": [_mark_choice(choice, marks) for choice in choices]}
    return {}


def _mark_choice(choice: Any, marks: Mapping[str, int]) -> Any:
    message = _get(choice, "message")
    if _has_tokens(message):
        return _update(choice, {"message": _update(message, marks)})
    return choice


def _has_tokens(part: Any) -> bool:
    return isinstance(part, TokenIDLogProbMixin) or (isinstance(part, Mapping) and has_token_fields(part))


def _get(holder: Any, name: str) -> Any:
    if isinstance(holder, Mapping):
        return holder.get(name)
    return getattr(holder, name, None)


def _update(holder: Any, fields: Mapping[str, Any]) -> Any:
    """Return a copy: a server may return the same object again, such as a recorded one."""
    if isinstance(holder, BaseModel):
        return holder.model_copy(update=dict(fields))
    return {**holder, **fields}


# --- the versions of a rollout ----------------------------------------------------------------------------------------


def pick_marks(answer: Any) -> dict[str, int]:
    """Return the versions on an answer, or on a part of one."""
    names = (POLICY_VERSION_FIELD, POLICY_VERSION_END_FIELD)
    return {name: value for name in names if type(value := _get(answer, name)) is int}


def describe_versions(response: Any, began: int | None, ended: int | None) -> dict[str, Any] | None:
    """Return what the row of a rollout says about policy versions; None if none was ever announced.

    `began` and `ended` are the versions in force when the rollout began and ended. Those on its response are more
    exact: the model calls may have come later, and scoring them takes time.
    """
    output = _get(response, "output")
    marked = [marks for part in (output if isinstance(output, list) else []) if (marks := pick_marks(part))]
    last = marked[-1] if marked else pick_marks(response)
    if marked:
        began = marked[0].get(POLICY_VERSION_FIELD, began)
    if last:
        ended = last.get(POLICY_VERSION_END_FIELD, last.get(POLICY_VERSION_FIELD, ended))
    if began is None and ended is None:
        return None
    inner = {value for marks in marked for value in marks.values()}
    return {"start": began, "end": ended, "straddles": began != ended or len(inner) > 1}


def read_described_versions(described: Any) -> tuple[int, int] | None:
    """Return the first and the last version in a row; None if it does not have both."""
    start = as_mapping(described).get("start")
    end = as_mapping(described).get("end")
    if type(start) is int and type(end) is int:
        return (start, end)
    return None
