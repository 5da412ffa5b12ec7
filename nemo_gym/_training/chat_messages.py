# SPDX-License-Identifier: Apache-2.0
"""The conversation of a row as chat messages: what the model was given, what it and its tools said, and in which turn.

A message of the model that carries tokens is linked to its turn, so that formats can put tokens beside texts. Reasoning
is kept beside the text, as `reasoning_content`; the template of the trained model decides how to render it.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from nemo_gym._training.alignment import Branch, Turn, find_turn
from nemo_gym._training.capture.call_records import list_answer_items
from nemo_gym._util.json_shapes import as_list, as_mapping
from nemo_gym._util.row_keys import RESPONSE_KEY_NAME, RESPONSES_CREATE_PARAMS_KEY_NAME
from nemo_gym._wire.converters.to_chat import convert_part, join_text

Message = dict[str, Any]
Item = Mapping[str, Any]


class NotExpressible(Exception):
    """A format cannot express something in a rollout; the message says what."""


@dataclass(slots=True)
class ChatConversation:
    """What was said in a rollout."""

    given: list[Message]
    """What the model was given before it said anything."""
    said: list[Message]
    """What the model and its tools said afterwards."""
    turns: list[int | None]
    """For each of `said`: the turn in which the model wrote it, if its tokens are known."""
    tools: list[dict[str, Any]]

    def list_all(self) -> list[tuple[Message, int | None]]:
        """Return all messages, each with its turn."""
        given: list[tuple[Message, int | None]] = [(message, None) for message in self.given]
        return given + list(zip(self.said, self.turns, strict=True))

    def require_turns(self, branch: Branch) -> None:
        """Raise NotExpressible unless every turn of the branch is a message of the conversation."""
        if not set(branch.turns) <= set(self.turns):
            raise NotExpressible("tokens that belong to no message of the conversation")


def read_conversation(row: Item, turns: Sequence[Turn] = (), *, parse_arguments: bool = False) -> ChatConversation:
    """Return the conversation of a row; `parse_arguments` parses those of tool calls, as chat templates want them.

    Raise NotExpressible for a row without a conversation, or with an item that chat cannot express.
    """
    params = as_mapping(row.get(RESPONSES_CREATE_PARAMS_KEY_NAME))
    given = read_given(row, parse_arguments=parse_arguments)
    output = list_answer_items(row.get(RESPONSE_KEY_NAME))
    if not given or not output:
        raise NotExpressible("no conversation")
    writer = _MessageWriter(parse_arguments)
    marks = []
    first = 0
    for item in output:
        writer.add(item)
        generated_ids = item.get("generation_token_ids")
        if not isinstance(generated_ids, list):
            continue
        writer.close()
        number = find_turn(turns, item.get("prompt_token_ids"), generated_ids, first)
        if number is not None:
            marks.append((len(writer.messages) - 1, number))
            first = number + 1
    writer.close()
    numbers: list[int | None] = [None] * len(writer.messages)
    for place, number in marks:
        numbers[place] = number
    return ChatConversation(given, writer.messages, numbers, list(map(_convert_tool, as_list(params.get("tools")))))


def read_given(row: Item, *, parse_arguments: bool = False) -> list[Message]:
    """Return what the model was given: the instructions and the input of the row."""
    params = as_mapping(row.get(RESPONSES_CREATE_PARAMS_KEY_NAME))
    given = params.get("input")
    instructions = params.get("instructions")
    writer = _MessageWriter(parse_arguments)
    if isinstance(instructions, str) and instructions:
        writer.add({"role": "system", "content": instructions})
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    for item in as_list(given):
        writer.add(item)
    writer.close()
    return writer.messages


@dataclass(slots=True)
class _MessageWriter:
    """Turns items into messages: what the model says between two answers of others becomes one message."""

    parse_arguments: bool
    messages: list[Message] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)
    _thoughts: list[str] = field(default_factory=list)
    _calls: list[dict[str, Any]] = field(default_factory=list)
    _is_open: bool = False
    _names: dict[str, str] = field(default_factory=dict)
    """The tools that were called, by call id."""

    def add(self, item: Any) -> None:
        fields = as_mapping(item)
        kind = fields.get("type") or "message"
        if kind == "message":
            self._add_message(fields)
        elif kind == "function_call":
            self._call(fields.get("call_id") or fields.get("id"), fields.get("name"), fields.get("arguments"))
        elif kind == "function_call_output":
            self._add_output(fields.get("call_id"), fields.get("output"))
        elif kind == "reasoning":
            self._is_open = True
            self._thoughts += _list_texts(as_list(fields.get("summary")) or as_list(fields.get("content")))
        else:
            raise NotExpressible(f"an item of type {kind!r}, which chat cannot express")

    def close(self) -> None:
        """End the message that the model is writing, if there is one."""
        if not self._is_open:
            return
        message: Message = {"role": "assistant", "content": "".join(self._texts)}
        if self._thoughts:
            message["reasoning_content"] = "\n".join(self._thoughts)
        if self._calls:
            message["tool_calls"] = self._calls
        self.messages.append(message)
        self._texts = []
        self._thoughts = []
        self._calls = []
        self._is_open = False

    def _add_message(self, fields: Item) -> None:
        role = fields.get("role")
        content = fields.get("content")
        if role == "assistant":
            self._is_open = True
            if isinstance(content, str):
                self._texts.append(content)
            else:
                self._texts += _list_texts(as_list(content))
            thought = fields.get("reasoning_content") or fields.get("reasoning")
            if isinstance(thought, str):
                self._thoughts.append(thought)
            for call in map(as_mapping, as_list(fields.get("tool_calls"))):
                function = as_mapping(call.get("function"))
                self._call(call.get("id"), function.get("name"), function.get("arguments"))
        elif role == "tool":
            self._add_output(fields.get("tool_call_id"), content)
        elif isinstance(role, str):
            self.close()
            self.messages.append({"role": role, "content": _convert_content(content)})
        else:
            raise NotExpressible("a message without a role")

    def _call(self, call_id: Any, name: Any, arguments: Any) -> None:
        self._is_open = True
        if isinstance(call_id, str) and isinstance(name, str):
            self._names[call_id] = name
        if not isinstance(arguments, str):
            arguments = orjson.dumps(arguments or {}).decode()
        if self.parse_arguments:
            with suppress(orjson.JSONDecodeError):  # if the model did not write a JSON object, keep the text
                if isinstance(parsed := orjson.loads(arguments), dict):
                    arguments = parsed
        self._calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}})

    def _add_output(self, call_id: Any, output: Any) -> None:
        self.close()
        message = {"role": "tool", "tool_call_id": call_id, "content": _convert_content(output)}
        if name := self._names.get(call_id):
            message["name"] = name
        self.messages.append(message)


def _convert_content(content: Any) -> str | list[dict[str, Any]]:
    """Return plain text if there is nothing else, as most templates want it; otherwise chat's parts."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        return orjson.dumps(content).decode()
    text = join_text(map(as_mapping, content))
    if text is not None:
        return text
    try:
        return [convert_part(part) for part in content]
    except (NotImplementedError, KeyError, TypeError) as error:
        raise NotExpressible("a content part that chat cannot express") from error


def _list_texts(parts: Iterable[Any]) -> list[str]:
    texts = [part.get("text") or part.get("refusal") for part in map(as_mapping, parts)]
    return [text for text in texts if isinstance(text, str)]


def _convert_tool(tool: Any) -> dict[str, Any]:
    fields = as_mapping(tool)
    if fields.get("type") != "function":
        raise NotExpressible(f"a tool of type {fields.get('type')!r}, which chat cannot express")
    if isinstance(fields.get("function"), dict):
        return dict(fields)
    names = ("name", "description", "parameters")
    return {"type": "function", "function": {name: fields[name] for name in names if fields.get(name) is not None}}
