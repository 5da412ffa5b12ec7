# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a reply that reports success. One that contains no answer is a failure, never an empty answer.

Transport problems (status codes, timeouts) are not here.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from nemo_gym._wire.schema.wire_model import get_field
from nemo_gym.errors import GymError


class InvalidModelReply(GymError):
    """A model endpoint answered with success, but what it sent is not a usable reply."""

    def __init__(self, message: str, reply: str = "") -> None:
        super().__init__(message, reply)
        self.message = message
        self.reply = reply

    def __str__(self) -> str:
        return f"{self.message}\nreply: {self.reply}" if self.reply else self.message


_UNANSWERED_STATUSES = frozenset({"queued", "in_progress", "failed", "cancelled"})
_UNANSWERED_FINISHES = frozenset({"error", "abort", "cancelled"})
"""What OpenRouter, vLLM, SGLang and others report when a generation broke off on their side."""


def explain_unanswered_response(reply: BaseModel | Mapping[str, Any]) -> str | None:
    """Return why a reply in the Responses dialect contains no answer; None if it has one, complete or cut off."""
    status = get_field(reply, "status")
    if error := get_field(reply, "error"):
        return f"it reports an error: {get_field(error, 'message') or error}"
    if status in _UNANSWERED_STATUSES:
        pending = " (does the request ask for `background`?)" if status in ("queued", "in_progress") else ""
        return f"its status is {status!r}{pending}"
    # A reply that was cut off may have ended before its first item.
    if not get_field(reply, "output") and status != "incomplete":
        return "its output is empty"
    return None


def explain_unanswered_completion(reply: BaseModel | Mapping[str, Any]) -> str | None:
    """Return why a chat completion contains no answer; None if it has one."""
    choices = get_field(reply, "choices")
    if not (isinstance(choices, list) and choices):
        return "it has no choices"
    for choice in choices:
        if get_field(choice, "finish_reason") in _UNANSWERED_FINISHES:
            error = get_field(choice, "error")
            said = f": {get_field(error, 'message') or error}" if error else ""
            return f"its finish_reason is {get_field(choice, 'finish_reason')!r}{said}"
        if get_field(choice, "message") is None:
            return "a choice has no message"
    return None
