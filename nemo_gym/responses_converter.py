# SPDX-License-Identifier: Apache-2.0
"""Convert between Responses and Chat Completions, for model servers whose endpoint only speaks chat.

`to_chat` and `from_chat` in `nemo_gym._wire.converters` document what each direction keeps and loses.
Subclasses override a `_format_…` method to change how that kind of item is written, and
`_extract_reasoning_from_content` to change how reasoning is separated from text.
"""

import re
from collections.abc import Iterable, Mapping
from time import time
from typing import Any
from uuid import uuid4

from pydantic import BaseModel

from nemo_gym._wire.converters import from_chat, to_chat
from nemo_gym._wire.converters.from_chat import read_usage_detail as _usage_detail  # noqa: F401  litellm_model imports it
from nemo_gym._wire.converters.to_chat import ResponsesConverterState as ResponsesConverterState
from nemo_gym._wire.schema.chat_request import NeMoGymChatCompletionCreateParamsNonStreaming
from nemo_gym._wire.schema.format_errors import (
    InvalidModelReply as InvalidModelReply,
    explain_unanswered_completion as explain_unanswered_completion,
    explain_unanswered_response as explain_unanswered_response,
)
from nemo_gym._wire.schema.item_unions import ITEM_TYPES
from nemo_gym._wire.schema.replies import NeMoGymChatCompletion, NeMoGymChoice, NeMoGymResponse
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym._wire.schema.wire_model import get_field, to_plain

VLLMConverterResponsesToChatCompletionsState = ResponsesConverterState

_THINK_BLOCK = re.compile(r"<think>(.*?)</think>", re.DOTALL)


class ResponsesConverter(BaseModel):
    """Converts requests for a chat endpoint, and its replies back."""

    return_token_id_information: bool
    """Carry token ids and log-probs: from items onto assistant messages, and from a reply onto its last item."""
    uses_reasoning_parser: bool = True
    """Treat closed `<think>` blocks in a reply as reasoning. Otherwise they stay in the text."""

    def responses_to_chat_completion_create_params(
        self, responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    ) -> NeMoGymChatCompletionCreateParamsNonStreaming:
        state = ResponsesConverterState(return_token_id_information=self.return_token_id_information)
        for item in to_chat.list_input_items(responses_create_params):
            self._format_item(item, state)
        state.flush_assistant()
        return to_chat.build_chat_params(responses_create_params, state.messages)

    def _format_item(self, item: dict[str, Any], state: ResponsesConverterState) -> None:
        match item.get("type") or "message":
            case "message":
                self._format_message(item, state)
            case "reasoning":
                self._format_reasoning(item, state)
            case "function_call":
                self._format_function_call(item, state)
            case "function_call_output":
                self._format_function_call_output(item, state)
            case kind:
                raise NotImplementedError(
                    f"an input item of type {kind!r} has no form in the Chat Completions API.\n"
                    "hint: use a model server that speaks the Responses API, or leave the item out"
                )

    def _format_message(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        to_chat.add_message(m, state)

    def _format_reasoning(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        # Without a summary, use the full reasoning text.
        thoughts = m.get("summary") or m.get("content") or []
        state.say(self._wrap_reasoning_in_think_tags(thought["text"] for thought in thoughts))
        state.attach_tokens(m)

    def _format_function_call(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        function = {"name": m["name"], "arguments": m["arguments"]}
        state.call({"id": m["call_id"], "type": "function", "function": function})
        state.attach_tokens(m)

    def _format_function_call_output(self, m: dict[str, Any], state: ResponsesConverterState) -> None:
        to_chat.add_tool_output(m["output"], m["call_id"], state)

    def chat_completion_to_response(
        self,
        responses_create_params: NeMoGymResponseCreateParamsNonStreaming,
        chat_completion: NeMoGymChatCompletion,
    ) -> NeMoGymResponse:
        output = self.postprocess_chat_response(from_chat.pick_choice(chat_completion))
        created_at = get_field(chat_completion, "created")
        if created_at is None:
            created_at = int(time())
        return from_chat.build_response(
            responses_create_params, chat_completion, output, f"resp_{uuid4().hex}", created_at
        )

    def postprocess_chat_response(self, choice: NeMoGymChoice) -> list[Any]:
        """Return the output items of a reply."""
        return self.postprocess_assistant_message_dict(to_plain(get_field(choice, "message")))

    def postprocess_assistant_message_dict(self, message_dict: Mapping[str, Any]) -> list[Any]:
        """Return the items of an assistant message, from a reply or from a history."""
        text, refusal = from_chat.read_text(message_dict)
        # Reasoning in its own field; two names are in use.
        reasoning = message_dict.get("reasoning_content") or message_dict.get("reasoning")
        thoughts = [reasoning] if isinstance(reasoning, str) and reasoning else []
        if self.uses_reasoning_parser:
            found, text = self._extract_reasoning_from_content(text)
            # A server that fills its reasoning field may repeat the reasoning in the text.
            thoughts = [thought for thought in thoughts if thought not in found] + found
        items = from_chat.build_assistant_items(message_dict, thoughts, text, refusal, lambda: uuid4().hex)
        return from_chat.attach_tokens(items, message_dict) if self.return_token_id_information else items

    def chat_completion_to_responses_create_params(
        self, chat_completion_create_params: NeMoGymChatCompletionCreateParamsNonStreaming
    ) -> NeMoGymResponseCreateParamsNonStreaming:
        set_names = chat_completion_create_params.model_fields_set
        given = {name: value for name, value in chat_completion_create_params if name in set_names}
        items = self.chat_completions_messages_to_responses_items(given.pop("messages"))
        return NeMoGymResponseCreateParamsNonStreaming(input=items, **from_chat.convert_chat_params(to_plain(given)))

    def chat_completions_messages_to_responses_items(self, messages: Iterable[Any]) -> list[Any]:
        """Return the items of a chat history."""
        items: list[Any] = []
        for message in map(to_plain, messages):
            if message["role"] == "assistant":
                items += self.postprocess_assistant_message_dict(message)
            else:
                items.append(from_chat.build_client_item(message))
        return items

    @staticmethod
    def _wrap_reasoning_in_think_tags(texts: Iterable[str]) -> str:
        return "".join(f"<think>{text}</think>" for text in texts)

    def _extract_reasoning_from_content(self, content: str) -> tuple[list[str], str]:
        """Return the reasoning inside `content`, and `content` without it."""
        return self._parse_think_tags(content)

    @staticmethod
    def _parse_think_tags(content: str) -> tuple[list[str], str]:
        # An unclosed block stays text, because its end is unknown.
        return _THINK_BLOCK.findall(content), _THINK_BLOCK.sub("", content)


VLLMConverter = ResponsesConverter

_RESPONSE_NON_BOUNDARY_TYPES = frozenset(
    {
        "function_call_output",
        "computer_call_output",
        "local_shell_call_output",
        "custom_tool_call_output",
        "mcp_approval_response",
    }
)
"""Types of the items that a client or its tools add to a conversation. Messages are told apart by role."""
_RESPONSE_OUTPUT_BOUNDARY_TYPES = frozenset(ITEM_TYPES) - {"message"} - _RESPONSE_NON_BOUNDARY_TYPES
"""Types of the items that only a model writes: the first of them ends the input."""


def split_responses_input_output_items(items: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Split items into the model's input, and everything from the first item it wrote."""
    listed = list(items)
    cut = next((index for index, item in enumerate(listed) if _is_from_model(item)), len(listed))
    return listed[:cut], listed[cut:]


def _is_from_model(item: Any) -> bool:
    fields = item if isinstance(item, Mapping) else dict(item)
    kind = str(fields.get("type") or "message")
    if kind == "message":
        return bool(fields.get("role", "assistant") == "assistant")
    return kind in _RESPONSE_OUTPUT_BOUNDARY_TYPES or kind.endswith("_call")
