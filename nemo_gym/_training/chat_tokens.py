# SPDX-License-Identifier: Apache-2.0
"""Turn a conversation into token ids, with the tokenizer and the chat template of the trained model.

What a model wrote is never retokenized. The prompt of its next turn is every id so far, exactly as the engine exchanged
them, followed by the ids of what the template puts in between: the end of the turn if the model did not write it, the
new messages, and the opening of the next turn. If a template cannot express that, the caller must start over.
"""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import uuid4

import orjson

from nemo_gym.errors import GymError

Message = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]] | None

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_THOUGHT = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_MARK = "NEMO-GYM-REPLY-GOES-HERE"
_LATER = "NEMO-GYM-MESSAGE-"
_ROLES = {"developer": "system"}


class ChatTokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is used here."""

    def apply_chat_template(self, conversation: Any, /, **settings: Any) -> Any: ...
    def encode(self, text: str, /, **settings: Any) -> list[int]: ...
    def decode(self, token_ids: Any, /, **settings: Any) -> str: ...


@dataclass(frozen=True)
class ParsedReply:
    """What a model's tokens say: text, and tool calls as name and JSON arguments."""

    text: str
    calls: list[tuple[str, str]] = field(default_factory=list)


ParseReply = Callable[[list[int], Tools], Awaitable[ParsedReply]]


class NotContinuable(GymError, ValueError):
    """The chat template does not put later messages after earlier ones, so a conversation cannot be continued."""


class ChatFormat:
    """Converts conversations to token ids, and token ids to replies."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        *,
        template_settings: Mapping[str, Any] | None = None,
        parse_reply: ParseReply | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._template_settings = dict(template_settings or {})
        self._parse_reply = parse_reply or self._parse_hermes

    def start(self, messages: Sequence[Message], tools: Tools) -> list[int]:
        """Return the prompt for the first turn."""
        return self._encode(self._render(messages, tools, opens_turn=True))

    def extend(self, ids: Sequence[int], messages: Sequence[Message], number: int, tools: Tools) -> list[int]:
        """Return the prompt for the turn after `ids`, which end with what the model wrote as message `number`.

        Raise NotContinuable if the chat template cannot express it.
        """
        added = self._encode(self._render_added(messages, number, tools))
        if ids and added and ids[-1] == added[0]:
            added = added[1:]  # the model itself wrote the token with which the template ends a turn
        return [*ids, *added]

    async def parse(self, generated_ids: list[int], tools: Tools) -> ParsedReply:
        """Return what the model said, with its reasoning in one `<think>` block."""
        parsed = await self._parse_reply(generated_ids, tools)
        before, end, after = parsed.text.partition("</think>")
        if end and "<think>" not in before:  # some templates open the block for the model
            return ParsedReply(f"<think>{before}{end}{after}", parsed.calls)
        return parsed

    def _render(self, messages: Sequence[Message], tools: Tools, *, opens_turn: bool) -> str:
        conversation = [_write_for_template(message) for message in messages]
        settings: dict[str, Any] = {**self._template_settings, "tokenize": False, "add_generation_prompt": opens_turn}
        text: str = self._tokenizer.apply_chat_template(conversation, tools=list(tools) if tools else None, **settings)
        return text

    def _render_added(self, messages: Sequence[Message], number: int, tools: Tools) -> str:
        """Return the text from the end of message `number`, a reply, to the opening of the next turn.

        The reply itself is replaced by a mark, because a template may write it differently than the model did.
        """
        before = messages[:number]
        reply = messages[number]
        later = messages[number + 1 :]
        bare = {"role": "assistant", "content": _MARK}
        end_of_turn = self._render_after_mark([*before, bare], tools, opens_turn=False)
        # Some templates need the call that a tool answers, others leave out the text beside a call.
        for marked in ({**bare, "tool_calls": reply.get("tool_calls")}, bare):
            closed = self._render_after_mark([*before, marked], tools, opens_turn=False)
            opened = self._render_after_mark([*before, marked, *later], tools, opens_turn=True)
            if end_of_turn is None or closed is None or opened is None or not opened.startswith(closed):
                continue
            numbered = [{**message, "content": f"{_LATER}{place}."} for place, message in enumerate(later)]
            traced = self._render_after_mark([*before, marked, *numbered], tools, opens_turn=True) or ""
            if all(f"{_LATER}{place}." in traced for place in range(len(later))):  # none is written further up
                return end_of_turn + opened[len(closed) :]
        raise NotContinuable("the chat template does not append new messages after an earlier reply")

    def _render_after_mark(self, messages: Sequence[Message], tools: Tools, *, opens_turn: bool) -> str | None:
        """Return what follows the mark; None if the template leaves it out, or rejects such a conversation."""
        try:
            _, mark, after = self._render(messages, tools, opens_turn=opens_turn).rpartition(_MARK)
        except Exception:  # templates raise all sorts of errors, and this conversation is our own making
            return None
        return after if mark else None

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    async def _parse_hermes(self, generated_ids: list[int], tools: Tools) -> ParsedReply:
        text = self._tokenizer.decode(generated_ids, skip_special_tokens=True)
        return parse_hermes_calls(text) if tools else ParsedReply(text)


def parse_hermes_calls(text: str) -> ParsedReply:
    """Parse calls in the format of Hermes and Qwen, `<tool_call>{"name": …, "arguments": …}</tool_call>`.

    A block that holds no such call stays text, so that nothing the model said is lost.
    """
    calls: list[tuple[str, str]] = []

    def take(block: re.Match[str]) -> str:
        try:
            call = json.loads(block[1])
            calls.append((str(call["name"]), json.dumps(call.get("arguments") or {})))
        except (ValueError, KeyError, TypeError, AttributeError):
            return block[0]
        return ""

    rest = _CALL.sub(take, text)
    return ParsedReply(rest.strip() if calls else rest, calls)


def build_message(reply: ParsedReply) -> dict[str, Any]:
    """Return a reply as an assistant message."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or (None if reply.calls else "")}
    if reply.calls:
        message["tool_calls"] = [
            {"id": f"call_{uuid4().hex}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in reply.calls
        ]
    return message


def digest_history(messages: Sequence[Message], tools: Tools) -> list[bytes]:
    """Return a digest of the conversation up to each message, by which a continued conversation is recognized.

    Call ids and whitespace around texts do not count: both change on the way through other formats.
    """
    digests = []
    state = orjson.dumps(tools or [], option=orjson.OPT_SORT_KEYS)
    for message in messages:
        said = orjson.dumps(_pick_content(message), option=orjson.OPT_SORT_KEYS)
        state = hashlib.blake2b(state + said, digest_size=16).digest()
        digests.append(state)
    return digests


def _pick_content(message: Message) -> list[Any]:
    text = join_text(message)
    calls = [
        [call["function"]["name"], _read_arguments(call["function"]["arguments"])]
        for call in message.get("tool_calls") or ()
    ]
    return [message["role"], [each.strip() for each in _THOUGHT.findall(text)], _THOUGHT.sub("", text).strip(), calls]


def join_text(message: Message) -> str:
    """Return the text of a message; raise ValueError if it holds anything else."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        return (content or "") + (message.get("refusal") or "")
    if others := [part["type"] for part in content if part["type"] not in ("text", "refusal")]:
        raise ValueError(f"this model reads text only, but a message holds {others[0]!r}")
    return "".join(part.get("text") or part.get("refusal") or "" for part in content)


def _write_for_template(message: Message) -> dict[str, Any]:
    """Return a message as templates expect it: text content, and call arguments as objects."""
    role = message["role"]
    written: dict[str, Any] = {"role": _ROLES.get(role, role), "content": join_text(message)}
    if calls := message.get("tool_calls"):
        written["tool_calls"] = [
            {
                **call,
                "function": {**call["function"], "arguments": _read_arguments(call["function"]["arguments"])},
            }
            for call in calls
        ]
    if message.get("tool_call_id") is not None:
        written["tool_call_id"] = message["tool_call_id"]
    return written


def _read_arguments(arguments: Any) -> Any:
    """Return arguments as an object; unchanged if they are not JSON, because the model's mistake must be kept."""
    try:
        return json.loads(arguments)
    except (TypeError, ValueError):
        return arguments
