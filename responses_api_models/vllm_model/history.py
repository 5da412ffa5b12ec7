# SPDX-License-Identifier: Apache-2.0
"""How a conversation is written for an endpoint with a reasoning parser, and how its replies are read.

Towards the endpoint the assistant's reasoning leaves the text and goes into fields of its own (two names are in use);
on the way back it becomes a `<think>` block in the text, which is where the converter looks for it.
"""

from collections.abc import Callable, Mapping
from typing import Any

Message = dict[str, Any]
SplitReasoning = Callable[[str], tuple[list[str], str]]
_REASONING_FIELDS = ("reasoning_content", "reasoning")


def rename_developer_role(messages: list[Message]) -> list[Message]:
    """`messages` for endpoints that know no developer."""
    return [{**m, "role": "system"} if m.get("role") == "developer" else m for m in messages]


def separate_reasoning(messages: list[Message], split: SplitReasoning, *, interleaved: bool) -> list[Message]:
    """Take the `<think>` blocks out of assistant texts; the first block of each is sent beside the text."""
    return [_separate(m, split, interleaved) if m.get("role") == "assistant" else m for m in messages]


def _separate(message: Message, split: SplitReasoning, interleaved: bool) -> Message:
    thoughts, content = _split_content(message.get("content"), split)
    if not thoughts:
        return message
    fields = dict.fromkeys(_REASONING_FIELDS, thoughts[0]) if interleaved else {}
    return {**message, "content": content, **fields}


def _split_content(content: Any, split: SplitReasoning) -> tuple[list[str], Any]:
    if isinstance(content, str):
        return split(content)
    thoughts: list[str] = []
    parts: list[Any] = []
    for part in content or []:
        if part.get("type") == "text":
            found, text = split(part["text"])
            thoughts += found
            part = {**part, "text": text}
        parts.append(part)
    return thoughts, parts


def ends_with_empty_assistant(messages: list[Message]) -> bool:
    """Return whether the model's last turn held neither text nor a call: it has thought, and would think again."""
    last = messages[-1] if messages else {}
    return last.get("role") == "assistant" and not (_has_text(last.get("content")) or last.get("tool_calls"))


def _has_text(content: Any) -> bool:
    if isinstance(content, list):
        return any(part.get("text") or part.get("refusal") for part in content)
    return bool(content)


def put_reasoning_in_text(message: Mapping[str, Any], wrap: Callable[[list[str]], str]) -> Message:
    """Return a reply's message with its reasoning in front of its text."""
    reasoning, rest = _take_reasoning(message)
    return {**rest, "content": f"{wrap([reasoning])}{rest.get('content') or ''}"} if reasoning else rest


def refuse_reasoning(message: Mapping[str, Any]) -> Message:
    """Return a reply's message, which must not have reasoning, because nobody here would see it."""
    reasoning, rest = _take_reasoning(message)
    if reasoning:
        raise AssertionError(
            "the endpoint sent reasoning in a field of its own, but the config says `uses_reasoning_parser: false`.\n"
            "hint: set `uses_reasoning_parser: true`, or start the endpoint without a reasoning parser"
        )
    return rest


def _take_reasoning(message: Mapping[str, Any]) -> tuple[str, Message]:
    reasoning = next((message[name] for name in _REASONING_FIELDS if message.get(name)), "")
    return reasoning, {name: value for name, value in message.items() if name not in _REASONING_FIELDS}
