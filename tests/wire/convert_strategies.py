# SPDX-License-Identifier: Apache-2.0
"""Conversations as hypothesis strategies: what the converters must carry, in the form that conversion gives back.

That form is canonical: within an assistant's turn reasoning comes before text and text before calls.
"""

from typing import Any

import hypothesis.strategies as st

# No "<": text that looks like a think block is reasoning to the converter, which has tests of its own.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=12)
words = texts.filter(bool)
names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,11}", fullmatch=True)
json_objects = st.dictionaries(
    names, st.integers(-9, 9) | texts | st.none() | st.lists(st.booleans(), max_size=2), max_size=3
)
urls = names.map(lambda name: f"https://example.org/{name}")

input_parts = st.one_of(
    st.builds(lambda text: {"type": "input_text", "text": text}, texts),
    st.builds(
        lambda url, detail: {"type": "input_image", "image_url": url, "detail": detail},
        urls,
        st.sampled_from(["low", "high", "auto"]),
    ),
    st.builds(lambda url: {"type": "input_video", "video_url": url}, urls),
    st.builds(lambda data, name: {"type": "input_file", "file_data": data, "filename": name}, words, names),
)
text_parts = st.builds(lambda text: {"type": "input_text", "text": text}, texts)


def _message(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


user_messages = st.builds(_message, st.just("user"), texts | st.lists(input_parts, max_size=3))
instructions = st.builds(
    _message, st.sampled_from(["system", "developer"]), texts | st.lists(text_parts, min_size=1, max_size=2)
)
call_outputs = st.builds(
    lambda call_id, output: {"type": "function_call_output", "call_id": call_id, "output": output},
    names,
    texts | st.lists(text_parts, max_size=2),
)
calls = st.builds(
    lambda call_id, name, arguments: {
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    },
    names,
    names,
    texts,
)
tokens = st.lists(st.integers(0, 2**17), max_size=6).map(
    lambda ids: {
        "prompt_token_ids": [7, *ids],
        "generation_token_ids": ids,
        "generation_log_probs": [-0.5 for _ in ids],
    }
)


@st.composite
def assistant_turns(draw: st.DrawFn, with_tokens: bool = False) -> list[dict[str, Any]]:
    """What one model call gives: at least one item."""
    items: list[dict[str, Any]] = []
    if thoughts := draw(st.lists(texts, max_size=2)):
        items.append(
            {"type": "reasoning", "id": "rs_0", "summary": [{"type": "summary_text", "text": t} for t in thoughts]}
        )
    said, refused, called = draw(texts), draw(st.just("") | texts), draw(st.lists(calls, max_size=3))
    if said or refused or not (thoughts or called):
        parts = [{"type": "output_text", "text": said, "annotations": []}] if said or not refused else []
        parts += [{"type": "refusal", "refusal": refused}] if refused else []
        items.append({"type": "message", "id": "msg_0", "role": "assistant", "content": parts})
    items += called
    if with_tokens:
        items[-1] = {**items[-1], **draw(tokens)}
    return items


@st.composite
def conversations(draw: st.DrawFn, with_tokens: bool = False) -> list[dict[str, Any]]:
    """Turns of the assistant with something from outside between any two of them."""
    items = draw(st.lists(instructions, max_size=2))
    for _ in range(draw(st.integers(0, 4))):
        items += draw(st.lists(user_messages | call_outputs, min_size=1, max_size=2))
        items += draw(assistant_turns(with_tokens))
    return items + draw(st.lists(user_messages | call_outputs, max_size=1))


chat_messages = st.builds(
    lambda content, refusal, reasoning, tool_calls: {
        "role": "assistant",
        "content": content,
        "refusal": refusal,
        "tool_calls": tool_calls or None,
        **({"reasoning_content": reasoning} if reasoning else {}),
    },
    st.none() | texts,
    st.none() | words,
    texts,
    st.lists(
        st.builds(
            lambda call_id, name, arguments: {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            },
            names,
            names,
            texts,
        ),
        max_size=3,
    ),
)


def completion(message: dict[str, Any], finish_reason: str = "stop", **fields: Any) -> dict[str, Any]:
    """A chat completion with one choice."""
    choice = {"index": 0, "message": message, "finish_reason": finish_reason, "logprobs": None}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return {**head, "choices": [choice], **fields}


def response(output: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """A finished response."""
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    return {**head, "output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], **fields}
