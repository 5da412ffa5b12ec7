# SPDX-License-Identifier: Apache-2.0
"""Chat through `/v1/completions`, for base models and endpoints without a chat route: a prompt out of the messages, and
a chat completion out of the text that comes back.

The prompt is either the plain texts or the model's own chat template. Tool calls in the reply stay text: nothing here
parses them.
"""

from collections.abc import Mapping
from typing import Any

from nemo_gym.config_types import ConfigError

Message = Mapping[str, Any]
_CHAT_ONLY = (
    "chat_template_kwargs",
    "max_completion_tokens",
    "messages",
    "metadata",
    "parallel_tool_calls",
    "reasoning_effort",
    "tool_choice",
    "tools",
    "top_logprobs",
    "verbosity",
)


def join_prompt(messages: list[Message]) -> str:
    """Return `[system,] user` as plain text, with a blank line between them."""
    roles = [message.get("role") for message in messages]
    if roles not in (["user"], ["system", "user"], ["developer", "user"]):
        raise ValueError(
            f"a prompt without chat template holds a user message, or a system and a user message, not {roles!r}.\n"
            "hint: set `render_chat_template: true` for conversations"
        )
    return "\n\n".join(_join_text(message.get("content")) for message in messages)


def _join_text(content: Any) -> str:
    if not isinstance(content, list):
        return content or ""
    if others := [part["type"] for part in content if part["type"] != "text"]:
        raise ValueError(f"a prompt for /v1/completions can only hold text, not {others[0]!r}")
    return "".join(part["text"] for part in content)


def load_tokenizer(name: str) -> Any:
    """Load the Hugging Face tokenizer `name`, which carries the model's chat template."""
    try:
        from transformers import AutoTokenizer  # type: ignore[import-not-found]  # large, and only this mode needs it
    except ImportError as error:
        raise ConfigError(
            "`render_chat_template: true` needs the package 'transformers', which is not installed.\n"
            "hint: `uv pip install transformers` in the environment of this server, or add it to its requirements.txt"
        ) from error
    return AutoTokenizer.from_pretrained(name)


def render_prompt(tokenizer: Any, body: Mapping[str, Any]) -> str:
    """Return the conversation in the model's chat template, up to where its next turn begins."""
    return str(
        tokenizer.apply_chat_template(
            body["messages"],
            tools=body.get("tools"),
            tokenize=False,
            add_generation_prompt=True,
            **(body.get("chat_template_kwargs") or {}),
        )
    )


def build_completion_request(body: Mapping[str, Any], prompt: str) -> dict[str, Any]:
    """Return the chat request `body` as a request for a completion of `prompt`."""
    request = {name: value for name, value in body.items() if name not in _CHAT_ONLY}
    request["prompt"] = prompt
    if body.get("max_completion_tokens") is not None:
        request.setdefault("max_tokens", body["max_completion_tokens"])
    if "logprobs" in body:  # here a number: how many alternatives, where 0 is only the chosen token
        request["logprobs"] = (body.get("top_logprobs") or 0) if body["logprobs"] else None
    return request


def convert_completion(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return a completion as the chat completion that a chat route would have sent."""
    choices = [_convert_choice(choice) for choice in reply.get("choices") or []]
    chat = {**reply, "object": "chat.completion", "choices": choices}
    prompt_ids = next((choice.get("prompt_token_ids") for choice in reply.get("choices") or []), None)
    return {**chat, "prompt_token_ids": prompt_ids} if prompt_ids is not None else chat


def _convert_choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    chat = {name: value for name, value in choice.items() if name not in ("text", "logprobs", "prompt_token_ids")}
    text = choice.get("text")
    chat["message"] = None if text is None else {"role": "assistant", "content": text}
    if logprobs := choice.get("logprobs"):
        pairs = zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True)
        content = [{"token": token, "logprob": value, "bytes": None, "top_logprobs": []} for token, value in pairs]
        chat["logprobs"] = {"content": content, "refusal": None}
    return chat
