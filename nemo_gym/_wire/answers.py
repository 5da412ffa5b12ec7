# SPDX-License-Identifier: Apache-2.0
"""Whether a reply that came with a success is an answer. One that is none is a failure, never an empty answer."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from nemo_gym._wire.convert_plain import field

Reply = BaseModel | Mapping[str, Any]

_UNANSWERED_STATUSES = frozenset({"queued", "in_progress", "failed", "cancelled"})
_UNANSWERED_FINISHES = frozenset({"error", "abort", "cancelled"})
"""What OpenRouter, vLLM, SGLang and others say of a generation that broke off on their side."""


def explain_unanswered_response(reply: Reply) -> str | None:
    """Return why a reply in the Responses dialect is no answer; None if it is one, complete or cut off."""
    status = field(reply, "status")
    if error := field(reply, "error"):
        return f"it reports an error: {field(error, 'message') or error}"
    if status in _UNANSWERED_STATUSES:
        pending = " (does the request ask for `background`?)" if status in ("queued", "in_progress") else ""
        return f"its status is {status!r}{pending}"
    # Whatever was cut off may have been so before the first item.
    if not field(reply, "output") and status != "incomplete":
        return "its output is empty"
    return None


def explain_unanswered_completion(reply: Reply) -> str | None:
    """Return why a chat completion is no answer; None if it is one."""
    choices = field(reply, "choices")
    if not (isinstance(choices, list) and choices):
        return "it has no choices"
    for choice in choices:
        if field(choice, "finish_reason") in _UNANSWERED_FINISHES:
            error = field(choice, "error")
            said = f": {field(error, 'message') or error}" if error else ""
            return f"its finish_reason is {field(choice, 'finish_reason')!r}{said}"
        if field(choice, "message") is None:
            return "a choice has no message"
    return None
