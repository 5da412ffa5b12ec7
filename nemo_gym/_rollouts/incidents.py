# SPDX-License-Identifier: Apache-2.0
"""What a result says of its rollout beside the reward: tools that crashed, what cut it off, which policy versions.

Agents put these into their result, or on a response that somebody else makes a result of. A response that is cut off by
its length says so by itself, whoever made it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from nemo_gym._rollouts.types import Row
from nemo_gym._util.known_secrets import KNOWN_SECRETS
from nemo_gym._util.row_keys import NG_CUT_OFF_KEY, NG_POLICY_VERSIONS_KEY, NG_TOOL_ERRORS_KEY, RESPONSE_KEY_NAME

MAX_STEPS, LENGTH = "max_steps", "length"
# Tuples, because what an agent sends may be of any type, also of one that has no hash.
_CUT_OFFS = (MAX_STEPS, LENGTH)
# As the Responses, the Chat Completions and the Anthropic dialect say it.
_LENGTH_REASONS = ("max_output_tokens", "length", "max_tokens")
_MOST_TOOL_ERRORS = 20
_LONGEST_MESSAGE = 2000


def lift_incidents(result: Row) -> None:
    """Let `result` say itself which tools crashed, what cut it off and which policy versions it saw."""
    response = result.get(RESPONSE_KEY_NAME)
    if type(response) is not dict:
        response = {}  # somebody else's result: what it says of itself is all there is
    on_response, in_result = response.pop(NG_TOOL_ERRORS_KEY, None), result.pop(NG_TOOL_ERRORS_KEY, None)
    if (on_response or in_result) and (tool_errors := pick_tool_errors(on_response) or pick_tool_errors(in_result)):
        result[NG_TOOL_ERRORS_KEY] = tool_errors
    on_response, in_result = response.pop(NG_CUT_OFF_KEY, None), result.pop(NG_CUT_OFF_KEY, None)
    cut_off = in_result or on_response
    if cut_off not in _CUT_OFFS:
        cut_off = LENGTH if is_cut_by_length(response) else None
    if cut_off:
        result[NG_CUT_OFF_KEY] = cut_off
    on_response, in_result = response.pop(NG_POLICY_VERSIONS_KEY, None), result.pop(NG_POLICY_VERSIONS_KEY, None)
    # Who made the response has seen the versions; a result may hold those of a row that it was made from.
    if versions := on_response or in_result:
        result[NG_POLICY_VERSIONS_KEY] = versions


def note_length_of_last_call(result: Row, calls: Sequence[Mapping[str, Any]]) -> None:
    """Note that the last of the captured model calls of a rollout was cut off, where the response does not tell."""
    if not calls or NG_CUT_OFF_KEY in result:
        return
    reason, status = calls[-1].get("finish_reason"), calls[-1].get("response_status")
    if reason in _LENGTH_REASONS or (reason is None and status == "incomplete"):
        result[NG_CUT_OFF_KEY] = LENGTH


def is_cut_by_length(reply: Any) -> bool:
    """Whether a model's reply, in whichever dialect, ended because it was long enough."""
    if type(reply) is not dict:
        return False
    details, choices = reply.get("incomplete_details"), reply.get("choices")
    if type(details) is dict and details.get("reason"):
        return details["reason"] in _LENGTH_REASONS
    if type(choices) is list and choices and type(choices[0]) is dict:
        return choices[0].get("finish_reason") in _LENGTH_REASONS
    # The other reason to be incomplete that there is, a content filter, is always named.
    return reply.get("status") == "incomplete" or reply.get("stop_reason") in _LENGTH_REASONS


def pick_tool_errors(given: Any) -> list[dict[str, Any]]:
    """Return the tool errors among `given`, which may come from anyone's agent; only the first few."""
    return [
        {
            "tool": one["tool"],
            "status": one["status"],
            "message": KNOWN_SECRETS.mask(one["message"])[-_LONGEST_MESSAGE:],
        }
        for one in (given if isinstance(given, list) else [])
        if isinstance(one, dict)
        and isinstance(one.get("tool"), str)
        and type(one.get("status")) is int
        and isinstance(one.get("message"), str)
    ][:_MOST_TOOL_ERRORS]
