# SPDX-License-Identifier: Apache-2.0
"""The chat history while it is being built from Responses items: finished messages, and the assistant's open turn.

Reasoning, text and function calls in a row are one assistant message in the Chat Completions API; the turn collects
them until something else comes.
"""

from typing import Any

from pydantic import BaseModel, Field

TokenInformation = dict[str, Any]


class ResponsesConverterState(BaseModel):
    """Chat messages so far, and what the assistant has said since the last one."""

    return_token_id_information: bool = False
    messages: list[dict[str, Any]] = Field(default_factory=list)
    content_buffer: list[str] = Field(default_factory=list)
    refusal_buffer: list[str] = Field(default_factory=list)
    tool_calls_buffer: list[dict[str, Any]] = Field(default_factory=list)
    token_information: TokenInformation | None = None
    token_information_end: tuple[int, int, int] = (0, 0, 0)
    """How much of each buffer had been said when the token information came: what belongs to that model call."""
    assistant_is_open: bool = False

    def say(self, text: str = "", refusal: str = "") -> None:
        """Add to the assistant's turn. An empty text opens one all the same: an empty reply was a turn."""
        self.assistant_is_open = True
        if text:
            self.content_buffer.append(text)
        if refusal:
            self.refusal_buffer.append(refusal)

    def call(self, tool_call: dict[str, Any]) -> None:
        self.assistant_is_open = True
        self.tool_calls_buffer.append(tool_call)

    def attach(self, tokens: TokenInformation) -> None:
        """Note the tokens of the model call that ends here. A second call in one turn gets a message of its own,
        because a message has room for the tokens of one.
        """
        if self.token_information is not None:
            self._emit(*self.token_information_end)
        self.token_information = tokens
        self.token_information_end = self._lengths()

    def flush_assistant(self) -> None:
        """Close the assistant's turn, if there is one."""
        if self.assistant_is_open:
            self._emit(*self._lengths())
        self.assistant_is_open = False

    def _lengths(self) -> tuple[int, int, int]:
        return len(self.content_buffer), len(self.refusal_buffer), len(self.tool_calls_buffer)

    def _emit(self, texts: int, refusals: int, calls: int) -> None:
        content, self.content_buffer = "".join(self.content_buffer[:texts]), self.content_buffer[texts:]
        refusal, self.refusal_buffer = "".join(self.refusal_buffer[:refusals]), self.refusal_buffer[refusals:]
        tool_calls, self.tool_calls_buffer = self.tool_calls_buffer[:calls], self.tool_calls_buffer[calls:]
        message: dict[str, Any] = {"role": "assistant", "content": content or None}
        if tool_calls:
            message["tool_calls"] = tool_calls
        if refusal:
            message["refusal"] = refusal
        if not (content or tool_calls or refusal):
            # Endpoints refuse a null content with nothing beside it.
            message["content"] = ""
        self.messages.append({**message, **(self.token_information or {})})
        self.token_information = None
