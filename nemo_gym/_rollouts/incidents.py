# SPDX-License-Identifier: Apache-2.0
"""What a result says about its rollout besides the reward: crashed tools, what cut it off, policy versions.

Agents put these into their result, or into a response that someone else turns into a result. A response cut off by its
length says so itself, whoever made it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from nemo_gym._rollouts.outcomes import Row
from nemo_gym._util.known_secrets import KNOWN_SECRETS
from nemo_gym._util.row_keys import NG_CUT_OFF_KEY, NG_POLICY_VERSIONS_KEY, NG_TOOL_ERRORS_KEY, RESPONSE_KEY_NAME

MAX_STEPS = "max_steps"
LENGTH = "length"
# Tuples, because an agent may send values of any type, including unhashable ones.
_CUT_OFFS = (MAX_STEPS, LENGTH)
# As the Responses, the Chat Completions and the Anthropic dialect say it.
_LENGTH_REASONS = ("max_output_tokens", "length", "max_tokens")
_MOST_TOOL_ERRORS = 20
_LONGEST_MESSAGE = 2000


def copy_incidents(result: Row) -> None:
    """Copy into `result` which tools crashed, what cut it off and which policy versions it saw."""
    response = result.get(RESPONSE_KEY_NAME)
    if type(response) is not dict:
        response = {}  # a third-party result: its own fields are all there is
    on_response = response.pop(NG_TOOL_ERRORS_KEY, None)
    in_result = result.pop(NG_TOOL_ERRORS_KEY, None)
    if (on_response or in_result) and (tool_errors := pick_tool_errors(on_response) or pick_tool_errors(in_result)):
        result[NG_TOOL_ERRORS_KEY] = tool_errors
    on_response = response.pop(NG_CUT_OFF_KEY, None)
    in_result = result.pop(NG_CUT_OFF_KEY, None)
    cut_off = in_result or on_response
    if cut_off in _CUT_OFFS:
        result[NG_CUT_OFF_KEY] = cut_off
    elif is_cut_by_length(response):
        result[NG_CUT_OFF_KEY] = LENGTH
    on_response = response.pop(NG_POLICY_VERSIONS_KEY, None)
    in_result = result.pop(NG_POLICY_VERSIONS_KEY, None)
    # Whoever made the response saw the versions; a result may hold those of the row it was made from.
    if versions := on_response or in_result:
        result[NG_POLICY_VERSIONS_KEY] = versions


def note_length_of_last_call(result: Row, calls: Sequence[Mapping[str, Any]]) -> None:
    """Note that a rollout's last captured model call was cut off, if the response does not say so."""
    if not calls or NG_CUT_OFF_KEY in result:
        return
    reason = calls[-1].get("finish_reason")
    status = calls[-1].get("response_status")
    if reason in _LENGTH_REASONS or (reason is None and status == "incomplete"):
        result[NG_CUT_OFF_KEY] = LENGTH


def is_cut_by_length(reply: Any) -> bool:
    """Return whether a model's reply, in any dialect, ended because of its length."""
    if type(reply) is not dict:
        return False
    details = reply.get("incomplete_details")
    choices = reply.get("choices")
    if type(details) is dict and details.get("reason"):
        return details["reason"] in _LENGTH_REASONS
    if type(choices) is list and choices and type(choices[0]) is dict:
        return choices[0].get("finish_reason") in _LENGTH_REASONS
    # The only other reason to be incomplete, a content filter, is always named.
    return reply.get("status") == "incomplete" or reply.get("stop_reason") in _LENGTH_REASONS


def pick_tool_errors(given: Any) -> list[dict[str, Any]]:
    """Return the first few tool errors in `given`, which may come from any agent."""
    if not isinstance(given, list):
        return []
    picked = []
    for one in given:
        if not isinstance(one, dict) or type(one.get("status")) is not int:
            continue
        if isinstance(one.get("tool"), str) and isinstance(one.get("message"), str):
            message = KNOWN_SECRETS.mask(one["message"])[-_LONGEST_MESSAGE:]
            picked.append({"tool": one["tool"], "status": one["status"], "message": message})
    return picked[:_MOST_TOOL_ERRORS]
