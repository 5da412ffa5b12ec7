# SPDX-License-Identifier: Apache-2.0
"""What an agent's `play` gets for one rollout: the model, and the tools of the environment."""

import asyncio
import importlib
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from nemo_gym.adapters.call_recording import ModelEndpoint
from nemo_gym.adapters.rollout_runner import read_sampling
from nemo_gym.errors import RolloutFailure
from nemo_gym.openai_utils import (
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
)
from nemo_gym.responses_converter import ResponsesConverter
from responses_api_agents.simple_agent.loop import Toolbox

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

LOG = logging.getLogger(__name__)

_CONVERTER = ResponsesConverter(return_token_id_information=False)
_CLOSE_TIMEOUT_S = 5.0
_INSTRUCTION_ROLES = ("system", "developer")


class AgentRollout:
    """One rollout, as `play` sees it."""

    def __init__(
        self,
        params: NeMoGymResponseCreateParamsNonStreaming,
        model: ModelEndpoint,
        toolbox: Toolbox,
        *,
        mcp_url: str | None = None,
        mcp_headers: Mapping[str, str] | None = None,
    ) -> None:
        self._params = params
        self._toolbox = toolbox
        self.base_url = model.base_url
        """The URL for Chat Completions and Responses in this rollout; ends with `/v1`."""
        self.root_url = model.base_url.removesuffix("/v1")
        """The same without `/v1`, for Anthropic's Messages."""
        self.api_key = model.api_key
        self.model = model.model
        """The model name to send; the model server serves its own model whatever the name."""
        self.mcp_url = mcp_url
        """The tools over MCP, in this rollout's session; None if the resources server does not offer them."""
        self.mcp_headers = dict(mcp_headers or {})
        """Headers that calls to `mcp_url` must send."""
        self.failure: Exception | None = None
        """The error of a tool call that was not the model's fault; a framework may have caught it."""
        self._loop = asyncio.get_running_loop()
        self._clients: list[Any] = []
        self._is_over = False

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The function tools that the task offers: `name`, `description`, and `parameters` as a JSON schema."""
        return [dict(tool) for tool in self._params.tools if tool["type"] == "function"]

    @property
    def chat_params(self) -> dict[str, Any]:
        """The task as arguments of `client.chat.completions.create`: model, messages, tools and sampling settings."""
        params = _CONVERTER.responses_to_chat_completion_create_params(self._params)
        return {**params.model_dump(mode="json", exclude_unset=True), "model": self.model}

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The prompt as messages of a chat."""
        messages: list[dict[str, Any]] = self.chat_params["messages"]
        return messages

    @property
    def instructions(self) -> str:
        """The text of the system and developer messages."""
        return _join_texts(message for message in self.messages if message["role"] in _INSTRUCTION_ROLES)

    @property
    def prompt(self) -> str:
        """The text of all other messages, for frameworks that take the task as one string."""
        return _join_texts(message for message in self.messages if message["role"] not in _INSTRUCTION_ROLES)

    @property
    def sampling(self) -> dict[str, Any]:
        """The `temperature`, `top_p` and `max_tokens` that the task or the run sets, if any."""
        return read_sampling({"responses_create_params": self._params.model_dump(exclude_unset=True)})

    def openai(self, **options: Any) -> "AsyncOpenAI":
        """Return an `openai` client for this rollout; it is closed when the rollout ends."""
        client: AsyncOpenAI = self._open_client("openai", "AsyncOpenAI", self.base_url, options)
        return client

    def anthropic(self, **options: Any) -> "AsyncAnthropic":
        """Return an `anthropic` client for this rollout; it is closed when the rollout ends."""
        client: AsyncAnthropic = self._open_client("anthropic", "AsyncAnthropic", self.root_url, options)
        return client

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """Call a tool of the resources server in this rollout's session; return the text for the model.

        The text describes the model's mistakes and the tool's errors. Any other problem raises and fails the rollout,
        even if the exception is caught.
        """
        call = self._call_tool(name, arguments)
        if asyncio.get_running_loop() is self._loop:
            return await call
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    def call_tool_sync(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """Call a tool and wait for it, as `call_tool` does: for a `play` that is not a coroutine function."""
        if asyncio._get_running_loop() is self._loop:
            raise TypeError("call_tool_sync would deadlock here.\nhint: `await rollout.call_tool(...)`")
        return asyncio.run_coroutine_threadsafe(self._call_tool(name, arguments), self._loop).result()

    async def close(self) -> None:
        """Refuse further tool calls and close the clients."""
        self._is_over = True
        for client in self._clients:
            try:
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await client.close()
            except Exception as error:
                LOG.warning("cannot close a client of a rollout: %s", error)

    def note_crashes_on(self, response: NeMoGymResponse) -> None:
        """Record on `response` which tools crashed."""
        self._toolbox.note_crashes_on(response)

    async def _call_tool(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        if self._is_over:
            raise RolloutFailure("agent", f"the tool {name!r} was called after the rollout had ended")
        text = arguments if isinstance(arguments, str) else orjson.dumps(dict(arguments)).decode()
        call = NeMoGymResponseFunctionToolCall(name=name, arguments=text, call_id=name)
        try:
            (output,) = await self._toolbox.run([call])
        except Exception as error:
            self.failure = self.failure or error
            raise
        return str(output.output)

    def _open_client(self, package: str, name: str, base_url: str, options: Mapping[str, Any]) -> Any:
        try:
            library = importlib.import_module(package)
        except ImportError as error:
            raise RolloutFailure(
                "agent", f"the package {package!r} is missing: {error}\nhint: add it to the agent's requirements.txt"
            ) from error
        settings = {"base_url": base_url, "api_key": self.api_key, "max_retries": 0, **options}
        if "http_client" not in settings:
            # The model server is part of this run: no proxy is needed, and plain HTTP needs no certificates, which
            # take a client 80 ms to load.
            is_plain = base_url.startswith("http:")
            settings["http_client"] = library.DefaultAsyncHttpxClient(trust_env=False, verify=not is_plain)
        client = getattr(library, name)(**settings)
        self._clients.append(client)
        return client


def _join_texts(messages: Iterable[Mapping[str, Any]]) -> str:
    contents = [message.get("content") or "" for message in messages]
    return "\n\n".join(
        text if isinstance(text, str) else "".join(part.get("text", "") for part in text) for text in contents
    )
