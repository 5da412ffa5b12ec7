# SPDX-License-Identifier: Apache-2.0
"""Play episodes in a running resources server, for systems that bring their own loop.

    episode = await EpisodeServer(client, "blackjack").begin(row)
    episode.start.messages, episode.start.tools
    step = await episode.act("<action>stand</action>")
    step.observation, step.reward, step.terminated

There are two kinds of server. One scores every step (`/reset`, `/step`, `/close`). The other scores the final answer
(`/seed_session`, tools if it has any, `/verify`): a tool call returns the tool's output, and a text is the answer that
ends the episode. A mistake of the model is answered or scored. A failure of the server raises; it is never a reward.
"""

import asyncio
import logging
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp
import orjson

from nemo_gym._servers.mcp.protocol import METADATA_KEY
from nemo_gym._training.record import TrainableRollout
from nemo_gym._util.json_shapes import as_mapping
from nemo_gym._util.row_keys import RESPONSE_KEY_NAME, RESPONSES_CREATE_PARAMS_KEY_NAME
from nemo_gym.base_resources_server import RESERVED_MCP_TOOL_NAMES
from nemo_gym.errors import GymError, RolloutFailure, ServerCallError, ToolCrashed
from nemo_gym.integrations.live import list_messages, read_row
from nemo_gym.openai_utils import NeMoGymChatCompletion, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status, read_failure
from nemo_gym.step_environments import EnvResetResponse, EnvStepResponse, Observation

LOG = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 30.0
_ONE_PATH_SEGMENT = re.compile(r"(?!\.+$)[\w.:-]+")


class EpisodeError(GymError):
    """An episode cannot start or continue."""


@dataclass(frozen=True)
class ToolUse:
    """An action that calls a tool."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


Action = str | ToolUse
"""A tool call, or the text that the model writes."""


@dataclass(frozen=True)
class EpisodeStart:
    """What the model gets before its first action."""

    messages: list[dict[str, Any]]
    """Chat messages, each with a role and content."""
    tools: list[dict[str, Any]]
    """The available tools, as function definitions of the Responses API."""
    info: dict[str, Any]
    """Anything else the server returns."""


@dataclass(frozen=True)
class EpisodeStep:
    """The result of an action."""

    observation: str
    """What the model sees next; usually empty at the end of an episode."""
    reward: float | None
    """The reward of this action; None if only the final answer is scored."""
    terminated: bool
    """Whether the episode reached its end."""
    truncated: bool
    """Whether the episode was cut off."""
    info: dict[str, Any]
    """Anything else the server returns, such as the parts of a reward."""


def read_action(text: str, *, offers_tools: bool) -> Action:
    """Return the action in `text`: `{"tool": NAME, "arguments": {...}}` is a tool call, anything else is an answer.

    If the task offers no tools, every text is an answer.
    """
    if not offers_tools:
        return text
    try:
        given = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    match given:
        case {"tool": str(name), "arguments": dict(arguments), **rest} if not rest:
            return ToolUse(name, arguments)
        case {"tool": str(name), **rest} if not rest:
            return ToolUse(name)
    return text


def render_messages(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return chat messages as one text; for a single message, just its content."""
    texts = [(str(message.get("role")), _read_content(message.get("content"))) for message in messages]
    if len(texts) == 1:
        return texts[0][1]
    return "\n\n".join(f"{role}: {text}" for role, text in texts)


def _read_content(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) if isinstance(part, Mapping) else str(part) for part in content)
    return content if isinstance(content, str) else ""


class RowCursor:
    """Hands out the rows of a dataset in turn, starting over after the last."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], name: str = "the dataset") -> None:
        self.rows = [read_row(row, f"row {number} of {name}") for number, row in enumerate(rows, 1)]
        self._next = 0

    def seek(self, seed: int) -> None:
        """Continue with row number `seed`, modulo the number of rows."""
        self._next = seed

    def take(self) -> dict[str, Any]:
        """Return the next row; raise EpisodeError if there are no rows."""
        if not self.rows:
            raise EpisodeError(
                "an episode needs a row, and there is no dataset to take one from.\n"
                "hint: pass a row with the reset, or name a dataset"
            )
        row = self.rows[self._next % len(self.rows)]
        self._next += 1
        return row


# --- episodes ---------------------------------------------------------------------------------------------------------


class ServerEpisode(ABC):
    """One session with a resources server, from the first observation to the last reward."""

    start: EpisodeStart

    def __init__(self, client: ServerClient, server: str, row: Mapping[str, Any]) -> None:
        self._client = client
        self._server = server
        self._row = dict(row)
        self._params = NeMoGymResponseCreateParamsNonStreaming.model_validate(row[RESPONSES_CREATE_PARAMS_KEY_NAME])
        self._cookies: dict[str, Any] = {}
        self._n_calls = 0
        self.is_over = False
        """Whether no action can follow: the episode has ended, or an action failed and its effect is unknown."""

    @property
    def offers_tools(self) -> bool:
        """Whether there are tools to call."""
        return bool(self.start.tools)

    async def act(self, action: Action) -> EpisodeStep:
        """Take an action and return its result; if the server fails, raise, and the episode is over."""
        if self.is_over:
            raise EpisodeError("the episode is over.\nhint: start another one with a reset")
        self.is_over = True
        if isinstance(action, ToolUse):
            step = await self._call_tool(action)
        else:
            step = await self._say(action)
        if step.reward is not None and not math.isfinite(step.reward):
            raise RolloutFailure("no_reward", f"{self._server!r} returned the non-finite reward {step.reward!r}")
        self.is_over = step.terminated or step.truncated
        return step

    @abstractmethod
    async def begin(self) -> None:
        """Open the session and set `start`. Only `EpisodeServer` calls this, once."""

    @abstractmethod
    async def close(self) -> None:
        """Let the server free the session; no further action is possible."""

    @abstractmethod
    async def _say(self, text: str) -> EpisodeStep: ...

    @abstractmethod
    async def _call_tool(self, call: ToolUse) -> EpisodeStep: ...

    def _set_start(self, reply: EnvResetResponse) -> None:
        tools = reply.tools
        if tools is None:
            tools = self._params.model_dump(mode="json")["tools"]
        self.start = EpisodeStart([*list_messages(self._row), *_to_messages(reply.observation)], tools, reply.info)

    def _build_response(self, **message: Any) -> dict[str, Any]:
        """Return an assistant's chat message as a response, with thinking and text in separate items."""
        completion = NeMoGymChatCompletion.model_validate(
            {
                "id": uuid4().hex,
                "object": "chat.completion",
                "created": 0,
                "model": "policy",
                "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}],
            }
        )
        converter = ResponsesConverter(return_token_id_information=False)
        return converter.chat_completion_to_response(self._params, completion).model_dump(mode="json")

    def _build_call(self, call: ToolUse) -> dict[str, Any]:
        self._n_calls += 1
        function = {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()}
        tool_call = {"id": f"call_{self._n_calls}", "type": "function", "function": function}
        return self._build_response(content=None, tool_calls=[tool_call])

    async def _post(self, path: str, body: Mapping[str, Any]) -> aiohttp.ClientResponse:
        reply = await self._client.post(self._server, path, json=dict(body), cookies=self._cookies)
        self._cookies.update(reply.cookies.items())
        return reply

    async def _ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post and return the JSON object of the reply; raise if it is anything else."""
        reply = await self._post(path, body)
        await raise_for_status(reply)
        answer = await get_response_json(reply)
        if not isinstance(answer, dict | None):
            raise RolloutFailure("invalid_reply", f"{self._server!r} answered {path} with {str(answer)[:200]!r}")
        return answer or {}


class SteppedEpisode(ServerEpisode):
    """An episode in a server that scores every step."""

    async def begin(self) -> None:
        self._set_start(EnvResetResponse.model_validate(await self._ask("/reset", self._row)))

    async def close(self) -> None:
        self.is_over = True
        if not self.start.info.get("supports_explicit_close"):
            return
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._ask("/close", self._row)
        except (aiohttp.ClientError, ServerCallError, TimeoutError) as error:
            LOG.warning("%r did not close a session: %s", self._server, error)

    async def _say(self, text: str) -> EpisodeStep:
        return await self._step(self._build_response(content=text))

    async def _call_tool(self, call: ToolUse) -> EpisodeStep:
        return await self._step(self._build_call(call))

    async def _step(self, response: dict[str, Any]) -> EpisodeStep:
        step = EnvStepResponse.model_validate(await self._ask("/step", {**self._row, RESPONSE_KEY_NAME: response}))
        outputs = [str(one["output"]) for one in step.info.get("tool_outputs") or ()]
        text = "\n".join(filter(None, [*outputs, render_messages(_to_messages(step.observation))]))
        return EpisodeStep(text, step.reward, step.terminated, step.truncated, step.info)


def _to_messages(observation: Observation) -> list[dict[str, Any]]:
    if isinstance(observation, list):
        return observation
    return [{"role": "user", "content": observation}] if observation else []


class VerifiedEpisode(ServerEpisode):
    """An episode in a server that scores the final answer; tools may be called before that."""

    mcp: dict[str, Any] | None = None
    """The `url` and `headers` with which MCP clients call this session's tools; None if it offers none over MCP."""

    def __init__(self, client: ServerClient, server: str, row: Mapping[str, Any]) -> None:
        super().__init__(client, server, row)
        self._items = list[dict[str, Any]]()

    async def begin(self) -> None:
        seeded = await self._ask("/seed_session", self._row)
        if (mcp := seeded.pop(METADATA_KEY, None)) is not None:
            url = f"{self._client._find_address(self._server).base_url}{mcp['url_path']}"
            self.mcp = {"url": url, "headers": mcp["headers"]}
        self._set_start(EnvResetResponse(info=seeded))

    async def close(self) -> None:
        self.is_over = True

    def add_call(self, call: ToolUse, output: str) -> None:
        """Record a tool call made by other means, such as MCP, so that the verifier sees it."""
        response = self._build_call(call)
        call_id = response["output"][-1]["call_id"]
        self._items += response["output"]
        self._items.append({"type": "function_call_output", "call_id": call_id, "output": output})

    async def _say(self, text: str) -> EpisodeStep:
        response = self._build_response(content=text)
        response["output"] = [*self._items, *response["output"]]
        verified = await self._ask("/verify", {**self._row, RESPONSE_KEY_NAME: response})
        rollout = TrainableRollout.from_row(verified)
        if rollout.failure is not None or rollout.reward is None:
            raise RolloutFailure(rollout.failure or "no_reward", f"the verifier of {self._server!r} returned no reward")
        known = {*self._row, RESPONSE_KEY_NAME, "reward"}
        info = {key: value for key, value in verified.items() if key not in known and not key.startswith("_ng_")}
        return EpisodeStep("", rollout.reward, terminated=True, truncated=False, info=info)

    async def _call_tool(self, call: ToolUse) -> EpisodeStep:
        if not self._may_call(call.name):
            offered = ", ".join(sorted(tool["name"] for tool in self.start.tools)) or "none"
            text = orjson.dumps({"error": f"Unknown tool {call.name!r}. Available tools: {offered}"}).decode()
        else:
            reply = await self._post(f"/{call.name}", call.arguments)
            text = (await reply.read()).decode(errors="replace")
            if reply.status >= 500:
                failure = read_failure(reply)
                if failure is None:
                    raise ToolCrashed(call.name, reply.status, text[-1000:])
                if failure.retryable:
                    raise RolloutFailure(failure.kind, failure.message, retryable=True)
                raise ToolCrashed(call.name, reply.status, failure.message)
            if not (text or reply.ok):
                text = f"The tool answered with status {reply.status} and no text"
        self.add_call(call, text)
        return EpisodeStep(text, None, terminated=False, truncated=False, info={})

    def _may_call(self, name: str) -> bool:
        offered = {tool["name"] for tool in self.start.tools if tool["type"] == "function"}
        if offered:
            return name in offered
        return name not in RESERVED_MCP_TOOL_NAMES and _ONE_PATH_SEGMENT.fullmatch(name) is not None


class EpisodeServer:
    """A running resources server, given by its name in the config."""

    def __init__(self, client: ServerClient, name: str) -> None:
        self._client = client
        self.name = name
        self._episode_class: type[ServerEpisode] | None = None

    async def begin(self, row: Mapping[str, Any]) -> ServerEpisode:
        """Start an episode of the task `row`."""
        if self._episode_class is None:
            self._episode_class = SteppedEpisode if await self._scores_steps() else VerifiedEpisode
        episode = self._episode_class(self._client, self.name, read_row(row, "`row`"))
        await episode.begin()
        return episode

    async def _scores_steps(self) -> bool:
        # Read the OpenAPI document, do not probe: a server that accepts any tool name would seem to have every route.
        reply = await self._client.get(self.name, "/openapi.json")
        await raise_for_status(reply)
        paths = as_mapping(as_mapping(await get_response_json(reply)).get("paths"))
        return {"/reset", "/step"} <= set(paths)
