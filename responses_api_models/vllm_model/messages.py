# SPDX-License-Identifier: Apache-2.0
"""How a conversation is written for the endpoint, and how its replies are read.

For an endpoint with a reasoning parser the assistant's reasoning leaves the text and goes into fields of its own (two
names are in use); on the way back it becomes a `<think>` block in the text, which is where the converter looks for it.

Audio is named in the `metadata` of a request, because the Responses API has no audio input: one of `audio_data`
(base64, or a URL), `audio_path` and `audio_paths` (a JSON list as text). It is put before the text of the last user
message, as parts of type `audio_url`.
"""

import mimetypes
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from responses_api_models.openai_model.endpoint import strip_metadata

Message = dict[str, Any]
SplitReasoning = Callable[[str], tuple[list[str], str]]
AUDIO_KEYS = ("audio_data", "audio_path", "audio_paths")
_REASONING_FIELDS = ("reasoning_content", "reasoning")
_URL_SCHEMES = ("data:", "http://", "https://", "file://")


def rename_developer_role(messages: list[Message]) -> list[Message]:
    """Return `messages` for endpoints that do not know the developer role."""
    return [{**m, "role": "system"} if m.get("role") == "developer" else m for m in messages]


def separate_reasoning(messages: list[Message], split: SplitReasoning, *, interleaved: bool) -> list[Message]:
    """Take the `<think>` blocks out of assistant texts; the first block of each is sent beside the text."""
    separated = list(messages)
    for place, message in enumerate(messages):
        if message.get("role") == "assistant":
            thoughts, content = _split_content(message.get("content"), split)
            if thoughts:
                fields = dict.fromkeys(_REASONING_FIELDS, thoughts[0]) if interleaved else {}
                separated[place] = {**message, "content": content, **fields}
    return separated


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
    content = last.get("content")
    if isinstance(content, list):
        content = any(part.get("text") or part.get("refusal") for part in content)
    return last.get("role") == "assistant" and not (content or last.get("tool_calls"))


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


# --- audio ------------------------------------------------------------------------------------------------------------


def has_audio(body: Mapping[str, Any]) -> bool:
    """Return whether the request names audio."""
    return any((body.get("metadata") or {}).get(key) for key in AUDIO_KEYS)


def insert_audio(body: Mapping[str, Any], audio_root: str | None) -> dict[str, Any]:
    """Return `body` with its audio in the last user message; reads the files it names."""
    urls = read_audio_urls(body["metadata"], audio_root)
    parts = [{"type": "audio_url", "audio_url": {"url": url}} for url in urls]
    messages = list(body["messages"])
    last = next((i for i in reversed(range(len(messages))) if messages[i].get("role") == "user"), None)
    if last is None:
        raise ValueError("the request's metadata names audio, but the conversation has no user message to put it in")
    messages[last] = {**messages[last], "content": _insert_before_text(parts, messages[last].get("content"))}
    return {**strip_metadata(body, *AUDIO_KEYS), "messages": messages}


def read_audio_urls(metadata: Mapping[str, str], audio_root: str | None) -> list[str]:
    """Return what the metadata names, as URLs that hold the audio itself."""
    given = [key for key in AUDIO_KEYS if metadata.get(key)]
    if len(given) > 1:
        raise ValueError(f"the request's metadata names audio more than once: {', '.join(given)}; give one of them")
    value = metadata[given[0]]
    if given[0] == "audio_data":
        return [value if value.startswith(_URL_SCHEMES) else f"data:audio/wav;base64,{value}"]
    paths = [value] if given[0] == "audio_path" else _parse_paths(value)
    return [_read_data_url(_locate(path, audio_root)) for path in paths]


def _parse_paths(text: str) -> list[str]:
    try:
        paths = orjson.loads(text)
    except orjson.JSONDecodeError:
        paths = None
    if isinstance(paths, list) and paths and all(isinstance(path, str) for path in paths):
        return paths
    raise ValueError(f'metadata.audio_paths must be a JSON list of paths as text, such as ["a.wav"], not {text!r}')


def _locate(path: str, audio_root: str | None) -> Path:
    """Return where `path` is. With a root, nothing outside of it is read: datasets are not trusted with the disk."""
    if audio_root is None:
        return Path(path)
    root = Path(audio_root).resolve()
    located = (root / path).resolve()
    if located.is_relative_to(root):
        return located
    raise ValueError(f"audio file {path!r} is outside of `audio_root` {str(root)!r}")


def _read_data_url(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"cannot read the audio file {str(path)!r}: {error.strerror}.\n"
            "hint: `audio_root` in the model server's config is where relative paths start"
        ) from error
    kind = mimetypes.guess_type(path.name)[0] or "audio/wav"
    return f"data:{kind};base64,{b64encode(content).decode()}"


def _insert_before_text(parts: list[dict[str, Any]], content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, list):
        return [*parts, {"type": "text", "text": content or ""}]
    first_text = next((i for i, part in enumerate(content) if part.get("type") == "text"), len(content))
    return [*content[:first_text], *parts, *content[first_text:]]
