# SPDX-License-Identifier: Apache-2.0
"""Content parts of one message, Responses ↔ Chat Completions: text, images, video, audio and files.

Parts that already have the other side's shape pass unchanged, because datasets mix the two. What the other side cannot
say is an error that names the part, never a silent loss.
"""

from collections.abc import Iterable, Mapping
from typing import Any

Part = Mapping[str, Any]

_CHAT_PARTS = {"text", "image_url", "video_url", "audio_url", "input_audio", "file"}


def to_chat(part: Part) -> dict[str, Any]:
    """An input part of the Responses API as a chat part."""
    match part["type"]:
        case "input_text" | "output_text":
            return {"type": "text", "text": part["text"]}
        case "input_image":
            return {"type": "image_url", "image_url": _given(url=_image_url(part), detail=part.get("detail"))}
        case "input_video":
            return {"type": "video_url", "video_url": {"url": part.get("video_url") or part.get("video")}}
        case "input_file":
            return {"type": "file", "file": _file(part)}
        case kind if kind in _CHAT_PARTS:
            return dict(part)
        case kind:
            raise NotImplementedError(f"content part {kind!r} has no form in the Chat Completions API: {_shown(part)}")


def from_chat(part: Part) -> dict[str, Any]:
    """A chat part as an input part of the Responses API."""
    match part["type"]:
        case "text":
            return {"type": "input_text", "text": part["text"]}
        case "image_url":
            image = part["image_url"]
            return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail") or "auto"}
        case "video_url":
            return {"type": "input_video", "video_url": part["video_url"]["url"]}
        case "file":
            return {"type": "input_file", **part["file"]}
        case kind if kind.startswith("input_"):
            return dict(part)
        case kind:
            raise NotImplementedError(f"content part {kind!r} has no form in the Responses API: {_shown(part)}")


def content_to_chat(content: str | Iterable[Part]) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [to_chat(part) for part in content]


def content_from_chat(content: str | Iterable[Part]) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [from_chat(part) for part in content]


def text_only(content: str | Iterable[Part]) -> str | None:
    """The text of `content`, or None if it holds anything else."""
    if isinstance(content, str):
        return content
    texts = [part.get("text") for part in content]
    return None if None in texts else "".join(map(str, texts))


def _image_url(part: Part) -> str:
    if url := part.get("image_url"):
        return str(url)
    raise NotImplementedError(
        f"an image by file id cannot be sent through the Chat Completions API: {_shown(part)}\n"
        "hint: give `image_url`, a URL or a base64 data URL"
    )


def _file(part: Part) -> dict[str, Any]:
    if part.get("file_url"):
        raise NotImplementedError(
            f"a file by URL cannot be sent through the Chat Completions API: {_shown(part)}\n"
            "hint: give `file_data` or `file_id`"
        )
    return _given(file_data=part.get("file_data"), file_id=part.get("file_id"), filename=part.get("filename"))


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _shown(part: Part) -> str:
    text = repr(dict(part))
    return text if len(text) <= 200 else f"{text[:200]}…"
