# SPDX-License-Identifier: Apache-2.0
"""What an agent in Python is given to play one rollout: its model, and the tools of its world."""

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
_INSTRUCTING = ("system", "developer")


class AgentRollout:
    """One rollout, as the code that plays it sees it."""

    def __init__(
        self,
        params: NeMoGymResponseCreateParamsNonStreaming,
        model: ModelEndpoint,
        toolbox: Toolbox,
        *,
        mcp_url: str | None = None,
        mcp_headers: Mapping[str, str] | None = None,
    ) -> None:
        self._params, self._toolbox = params, toolbox
        self.base_url = model.base_url
        """Where the model of this rollout answers Chat Completions and Responses; ends with `/v1`."""
        self.root_url = model.base_url.removesuffix("/v1")
        """The same without `/v1`, for clients of Anthropic's Messages."""
        self.api_key = model.api_key
        self.model = model.model
        """The name to ask for; the model server serves its own model whatever the name is."""
        self.mcp_url = mcp_url
        """The tools over MCP, in the session of this rollout; None if the resources server does not offer that."""
        self.mcp_headers = dict(mcp_headers or {})
        """What calls of `mcp_url` have to send."""
        self.failure: Exception | None = None
        """What a tool call ended in that the model is not to blame for; a framework may have made a text of it."""
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
        asked = _CONVERTER.responses_to_chat_completion_create_params(self._params)
        return {**asked.model_dump(mode="json", exclude_unset=True), "model": self.model}

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The prompt as messages of a chat."""
        messages: list[dict[str, Any]] = self.chat_params["messages"]
        return messages

    @property
    def instructions(self) -> str:
        """The text of the system's and the developer's messages."""
        return _join_texts(message for message in self.messages if message["role"] in _INSTRUCTING)

    @property
    def prompt(self) -> str:
        """The text of all other messages, for frameworks whose task is one text."""
        return _join_texts(message for message in self.messages if message["role"] not in _INSTRUCTING)

    @property
    def sampling(self) -> dict[str, Any]:
        """Those of `temperature`, `top_p` and `max_tokens` that the task or the run sets."""
        return read_sampling({"responses_create_params": self._params.model_dump(exclude_unset=True)})

    def openai(self, **options: Any) -> "AsyncOpenAI":
        """Return a client of OpenAI's package for this rollout, which is closed when the rollout is over."""
        client: AsyncOpenAI = self._open_client("openai", "AsyncOpenAI", self.base_url, options)
        return client

    def anthropic(self, **options: Any) -> "AsyncAnthropic":
        """Return a client of Anthropic's package for this rollout, which is closed when the rollout is over."""
        client: AsyncAnthropic = self._open_client("anthropic", "AsyncAnthropic", self.root_url, options)
        return client

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """Call a tool of the resources server in the session of this rollout; return what the model is to be told.

        What the model did wrong is told in the text, as is a tool's error. What is not its doing raises, and the
        rollout has failed, even if that is caught.
        """
        call = self._call_tool(name, arguments)
        if asyncio.get_running_loop() is self._loop:
            return await call
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    def call_tool_sync(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """Do what `call_tool` does, and wait for it: for a `play` that is no coroutine."""
        if asyncio._get_running_loop() is self._loop:
            raise TypeError("call_tool_sync would wait for itself here.\nhint: `await rollout.call_tool(...)`")
        return asyncio.run_coroutine_threadsafe(self._call_tool(name, arguments), self._loop).result()

    async def close(self) -> None:
        """Refuse further tool calls, and close the clients."""
        self._is_over = True
        for client in self._clients:
            try:
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await client.close()
            except Exception as error:
                LOG.warning("a client of a rollout was not closed: %s", error)

    def note_crashes_on(self, response: NeMoGymResponse) -> None:
        """Let `response` say which tools crashed."""
        self._toolbox.note_crashes_on(response)

    async def _call_tool(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        if self._is_over:
            raise RolloutFailure("agent", f"the tool {name!r} was called after the end of the rollout")
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
                "agent", f"the package {package!r} is not here: {error}\nhint: add it to the agent's requirements.txt"
            ) from error
        given = {"base_url": base_url, "api_key": self.api_key, "max_retries": 0, **options}
        if "http_client" not in given:
            # The model server is another part of this run: no proxy stands between, and plain HTTP needs no
            # certificates, which take a client 80 ms to load.
            is_plain = base_url.startswith("http:")
            given["http_client"] = library.DefaultAsyncHttpxClient(trust_env=False, verify=not is_plain)
        client = getattr(library, name)(**given)
        self._clients.append(client)
        return client


def _join_texts(messages: Iterable[Mapping[str, Any]]) -> str:
    contents = [message.get("content") or "" for message in messages]
    return "\n\n".join(
        text if isinstance(text, str) else "".join(part.get("text", "") for part in text) for text in contents
    )
