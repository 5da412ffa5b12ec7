# SPDX-License-Identifier: Apache-2.0
"""Find the value that a response hands over by a tool call."""

import json
from typing import Any

from nemo_gym import grading
from nemo_gym.openai_utils import NeMoGymResponse
from resources_servers.structured_outputs.checking import Finding


def find_tool_payload(response: NeMoGymResponse, tool_name: str | None, payload_key: str | None) -> Any:
    """Return the value in the one tool call of a response, or a Finding that says why there is none.

    `tool_name` is the tool that must be called, None for any; `payload_key` the argument that holds the value, None if
    the arguments are the value.
    """
    calls = grading.function_calls(response)
    if not calls:
        return Finding("missing_tool_call", "the reply calls no tool")
    if len(calls) > 1:
        return Finding("multiple_tool_calls", f"the reply calls {len(calls)} tools, not one")
    call = calls[0]
    if tool_name is not None and call.name != tool_name:
        return Finding("wrong_tool_name", f"the reply calls {call.name!r}, not {tool_name!r}")
    if call.arguments is None:
        return Finding("tool_arguments_parse_error", f"the arguments are {call.error}")
    if payload_key is None:
        return call.arguments
    if payload_key not in call.arguments:
        given = ", ".join(map(json.dumps, call.arguments)) or "none"
        return Finding("missing_tool_payload_key", f"no argument {payload_key!r} among {given}")
    return call.arguments[payload_key]
