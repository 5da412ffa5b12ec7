# SPDX-License-Identifier: Apache-2.0
"""The parameters of a Chat Completions request in the Responses dialect.

Sampling parameters that a Responses request has no field for (stop, seed, penalties …) go where this framework keeps
them: the JSON string `metadata.extra_body`, from which model servers take them again. Lost: `modalities`, `audio`,
`prediction`, `web_search_options` and the deprecated function parameters, which no model server here supports.
"""

from collections.abc import Mapping
from typing import Any

from nemo_gym._wire.convert_to_chat import SAME_PARAMS, with_extra_body

_SAMPLING = ("frequency_penalty", "logit_bias", "presence_penalty", "seed", "stop")


def responses_params(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Everything of the request `chat` but its messages, as fields of a Responses request."""
    if chat.get("n") not in (None, 1):
        raise NotImplementedError(f"a response holds one choice, but the chat request asks for n={chat['n']!r}")
    given = {name: value for name, value in chat.items() if value is not None}
    fields = {name: given[name] for name in SAME_PARAMS if name in given}
    fields |= _renamed(given) | _tool_params(given)
    return with_extra_body(fields, {name: given[name] for name in _SAMPLING if name in given})


def _renamed(given: Mapping[str, Any]) -> dict[str, Any]:
    text_format = _text_format(given.get("response_format"))
    renamed = {
        "max_output_tokens": given.get("max_completion_tokens", given.get("max_tokens")),
        "reasoning": {"effort": given["reasoning_effort"]} if "reasoning_effort" in given else None,
        "top_logprobs": given.get("top_logprobs"),
        "include": ["message.output_text.logprobs"] if given.get("logprobs") else None,
        "text": {"format": text_format} if text_format else None,
    }
    return {name: value for name, value in renamed.items() if value is not None}


def _text_format(response_format: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not response_format or response_format["type"] != "json_schema":
        return dict(response_format) if response_format else None
    return {"type": "json_schema", **response_format["json_schema"]}


def _tool_params(given: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if given.get("tools"):
        fields["tools"] = [_tool(tool) for tool in given["tools"]]
    if "tool_choice" in given:
        fields["tool_choice"] = _tool_choice(given["tool_choice"])
    if "parallel_tool_calls" in given:
        fields["parallel_tool_calls"] = given["parallel_tool_calls"]
    return fields


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool["type"] != "function":
        raise NotImplementedError(f"chat tool type {tool['type']!r} is not supported; only functions are")
    function = tool["function"]
    described = {"description": function["description"]} if function.get("description") is not None else {}
    return {
        "type": "function",
        "name": function["name"],
        **described,
        "parameters": function.get("parameters"),
        "strict": function.get("strict"),
    }


def _tool_choice(choice: str | Mapping[str, Any]) -> Any:
    if isinstance(choice, str):
        return choice
    match choice["type"]:
        case "function":
            return {"type": "function", "name": choice["function"]["name"]}
        case "allowed_tools":
            allowed = choice["allowed_tools"]
            tools = [{"type": "function", "name": tool["function"]["name"]} for tool in allowed["tools"]]
            return {"type": "allowed_tools", "mode": allowed["mode"], "tools": tools}
        case kind:
            raise NotImplementedError(f"chat tool_choice {kind!r} is not supported; only functions are")
