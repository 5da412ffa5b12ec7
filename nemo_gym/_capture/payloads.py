# SPDX-License-Identifier: Apache-2.0
"""The items in a model's answer, and what tells them apart.

Bodies come from other people's servers, so every look inside tolerates another shape and then finds nothing.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from nemo_gym._util.json_shapes import as_list, as_mapping

TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
OPTIONAL_TOKEN_FIELDS = ("routed_experts",)


def answer_items(response: Any) -> list[dict[str, Any]]:
    """Return the output items of a Responses answer, or the messages of a chat completion."""
    answer = as_mapping(response)
    if isinstance(output := answer.get("output"), list):
        return [item for item in output if isinstance(item, dict)]
    messages = [as_mapping(choice).get("message") for choice in as_list(answer.get("choices"))]
    return [message for message in messages if isinstance(message, dict)]


def item_keys(item: Mapping[str, Any]) -> set[str]:
    """What tells a generated item from the others: its ids, and for plain text a digest of the text."""
    calls = item.get("tool_calls")
    named = [item.get("call_id"), item.get("id")]
    # An agent's loop turns the last tool call of a chat message into the item that ends the turn.
    named += [as_mapping(call).get("id") for call in as_list(calls)[-1:]]
    keys = {f"id:{name}" for name in named if isinstance(name, str) and name}
    text = "" if calls else _text_of(item.get("content")).strip()
    return keys | {f"text:{hashlib.sha256(text.encode()).hexdigest()}"} if text else keys


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [as_mapping(part).get("text") for part in as_list(content)]
    return "".join(part for part in parts if isinstance(part, str))
