# SPDX-License-Identifier: Apache-2.0
"""Serve resources servers over OpenEnv's protocol, made for openenv-core 0.3.0, which need not be installed.

    GenericEnvClient(base_url="http://127.0.0.1:8123/NAME")     NAME: a resources server of the config

A WebSocket at `/NAME/ws` is a session; any number may be open at once. A reset takes the next row of the server's
dataset, the row that a `seed` selects, or the `row` passed to it. An action has a `text` or calls a `tool`. When the
WebSocket closes, the episode ends and the server discards its state. A failure of the server is a protocol error, never
a reward. MCP is not supported here; use `gym env start --as mcp`.

This runs on aiohttp, because uvicorn would need another package for WebSockets.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakSet

import orjson
from aiohttp import WSCloseCode, WSMsgType, web
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from nemo_gym._servers.http.admission import AccessRules, Admission
from nemo_gym._servers.http.peer_user import refuse_other_user
from nemo_gym._servers.http.sockets import bind
from nemo_gym._util.jsonl_files import read_rows
from nemo_gym._util.known_secrets import KNOWN_SECRETS, describe_error
from nemo_gym._util.reachable_addresses import reachable_url
from nemo_gym._version import __version__
from nemo_gym.errors import GymError
from nemo_gym.integrations.episodes import (
    Action,
    EpisodeError,
    EpisodeServer,
    RowCursor,
    ServerEpisode,
    ToolUse,
    render_messages,
)
from nemo_gym.server_utils import ServerClient

OPENENV_VERSION = "0.3.0"
"""The version of openenv-core whose clients this was written for and tested with."""
LOG = logging.getLogger(__name__)

_MAX_MESSAGE_BYTES = 100 * 2**20
_STOP_GRACE_S = 5.0


class OpenEnvAction(BaseModel):
    """What the model says, or a call to one of the task's tools."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = Field(default=None, description="What the model says; servers that verify take it as the answer")
    tool: str | None = Field(default=None, description="Name of the tool to call")
    arguments: dict[str, Any] = Field(default_factory=dict, description="Arguments of the tool call")
    metadata: dict[str, Any] = Field(default_factory=dict, description="Ignored")

    @model_validator(mode="after")
    def _require_text_or_tool(self) -> "OpenEnvAction":
        if (self.text is None) == (self.tool is None):
            raise ValueError('an action has either a "text" or a "tool"')
        return self

    def read(self) -> Action:
        """Return the action."""
        if self.tool is not None:
            return ToolUse(self.tool, self.arguments)
        return self.text or ""


class OpenEnvObservation(BaseModel):
    """What the model sees, and the status of the episode."""

    text: str = Field(description="What the model sees, as one text")
    messages: list[dict[str, Any]] = Field(default_factory=list, description="After a reset: the prompt, as messages")
    tools: list[dict[str, Any]] = Field(default_factory=list, description="After a reset: the tools of the task")
    truncated: bool = Field(default=False, description="Whether the episode was cut off before its end")
    info: dict[str, Any] = Field(default_factory=dict, description="Anything else the server returns")
    done: bool = Field(default=False, description="Whether the episode is over")
    reward: float | None = Field(default=None, description="Reward of the last action, if it has one")

    def to_wire(self) -> dict[str, Any]:
        """Return the observation in the wire format."""
        content = self.model_dump(mode="json")
        return {"reward": content.pop("reward"), "done": content.pop("done"), "observation": content}


class OpenEnvState(BaseModel):
    """The progress of the episode."""

    episode_id: str | None = None
    step_count: int = 0


class OpenEnvReset(BaseModel):
    """How to start an episode; other keys are ignored."""

    seed: int | None = Field(default=None, ge=0)
    episode_id: str | None = Field(default=None, max_length=255)
    row: dict[str, Any] | None = None


class OpenEnvStep(BaseModel):
    """One action without a session, in an episode of `row`."""

    action: OpenEnvAction
    row: dict[str, Any]


@dataclass
class _Environment:
    """A resources server, and the rows for its episodes."""

    server: EpisodeServer
    rows: RowCursor


@dataclass
class _OpenEnvSession:
    """A client's session."""

    environment: _Environment
    episode: ServerEpisode | None = None
    state: OpenEnvState = field(default_factory=OpenEnvState)

    async def reset(self, given: OpenEnvReset) -> OpenEnvObservation:
        await self.close()
        if given.seed is not None:
            self.environment.rows.seek(given.seed)
        self.episode = await self.environment.server.begin(given.row or self.environment.rows.take())
        self.state = OpenEnvState(episode_id=given.episode_id or uuid4().hex)
        start = self.episode.start
        return OpenEnvObservation(
            text=render_messages(start.messages), messages=start.messages, tools=start.tools, info=start.info
        )

    async def step(self, action: OpenEnvAction) -> OpenEnvObservation:
        if self.episode is None:
            raise EpisodeError("no episode has started.\nhint: reset first")
        step = await self.episode.act(action.read())
        self.state.step_count += 1
        done = step.terminated or step.truncated
        return OpenEnvObservation(
            text=step.observation, reward=step.reward, done=done, truncated=step.truncated, info=step.info
        )

    async def close(self) -> None:
        episode = self.episode
        self.episode = None
        if episode is not None:
            await episode.close()


# --- messages ---------------------------------------------------------------------------------------------------------


async def _answer(session: _OpenEnvSession, text: str) -> dict[str, Any] | None:
    """Return the reply to one message of a session; None if the client ends the session."""
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return _build_error("INVALID_JSON", f"Invalid JSON: {error}")
    if not isinstance(message, dict):
        return _build_error("VALIDATION_ERROR", "a message is a JSON object with a `type`")
    try:
        match message.get("type"):
            case "reset":
                data = (await session.reset(OpenEnvReset.model_validate(message.get("data") or {}))).to_wire()
                return {"type": "observation", "data": data}
            case "step":
                data = (await session.step(OpenEnvAction.model_validate(message.get("data")))).to_wire()
                return {"type": "observation", "data": data}
            case "state":
                return {"type": "state", "data": session.state.model_dump()}
            case "close":
                return None
            case other:
                return _build_error("UNKNOWN_TYPE", f"Unknown message type: {other}")
    except ValidationError as error:
        problems = _list_errors(error)
        details = "; ".join(f"{'.'.join(map(str, one['loc']))} {one['msg']}".strip() for one in problems)
        return _build_error("VALIDATION_ERROR", f"Invalid message: {details}", errors=problems)
    except Exception as error:
        if not isinstance(error, GymError):
            LOG.exception("an episode in %r failed", session.environment.server.name)
        return _build_error("EXECUTION_ERROR", _describe(error))


def _describe(error: Exception) -> str:
    return KNOWN_SECRETS.mask(str(error)) if isinstance(error, GymError) else describe_error(error)


def _build_error(code: str, message: str, **fields: Any) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code, **fields}}


def _list_errors(error: ValidationError) -> Any:
    return orjson.loads(error.json(include_url=False, include_context=False))


# --- HTTP -------------------------------------------------------------------------------------------------------------


class _Gateway:
    """The HTTP routes of all servers, under their names."""

    def __init__(self, environments: Mapping[str, _Environment]) -> None:
        self._environments = environments
        self._open = WeakSet[web.WebSocketResponse]()

    def build_app(self, admission: Admission) -> web.Application:
        app = web.Application(client_max_size=_MAX_MESSAGE_BYTES, middlewares=[_make_guard(admission)])
        app.add_routes(
            [
                web.get("/{name}/ws", self._serve_session),
                web.post("/{name}/reset", self._reset),
                web.post("/{name}/step", self._step),
                web.get("/{name}/state", self._show_state),
                web.get("/{name}/schema", self._show_schema),
                web.get("/{name}/health", self._show_health),
                web.get("/{name}/metadata", self._show_metadata),
            ]
        )
        app.on_shutdown.append(self._close_sessions)
        return app

    def _open_session(self, request: web.Request) -> _OpenEnvSession:
        name = request.match_info["name"]
        if name not in self._environments:
            text = f"there is no resources server {name!r}; served: {', '.join(self._environments)}"
            raise web.HTTPNotFound(text=orjson.dumps({"detail": text}).decode(), content_type="application/json")
        return _OpenEnvSession(self._environments[name])

    async def _serve_session(self, request: web.Request) -> web.WebSocketResponse:
        session = self._open_session(request)
        # No heartbeat: a client that computes for minutes between two steps would not answer it.
        socket = web.WebSocketResponse(max_msg_size=_MAX_MESSAGE_BYTES)
        await socket.prepare(request)
        self._open.add(socket)
        try:
            async for message in socket:
                if message.type is not WSMsgType.TEXT:
                    break
                reply = await _answer(session, message.data)
                if reply is None:
                    break
                with suppress(ConnectionError):  # the client has left, so the loop will end
                    await socket.send_str(orjson.dumps(reply).decode())
        finally:
            await session.close()
            await socket.close()
        return socket

    async def _close_sessions(self, app: web.Application) -> None:
        for socket in list(self._open):
            await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the server is stopping")

    async def _reset(self, request: web.Request) -> web.Response:
        """Return how an episode would start: without a WebSocket there is no session to continue in."""
        session = self._open_session(request)
        try:
            return _reply((await session.reset(await _read(OpenEnvReset, request))).to_wire())
        finally:
            await session.close()

    async def _step(self, request: web.Request) -> web.Response:
        session = self._open_session(request)
        given = await _read(OpenEnvStep, request)
        try:
            await session.reset(OpenEnvReset(row=given.row))
            return _reply((await session.step(given.action)).to_wire())
        finally:
            await session.close()

    async def _show_state(self, request: web.Request) -> web.Response:
        return _reply(self._open_session(request).state.model_dump())

    async def _show_schema(self, request: web.Request) -> web.Response:
        self._open_session(request)
        kinds: dict[str, type[BaseModel]] = {
            "action": OpenEnvAction,
            "observation": OpenEnvObservation,
            "state": OpenEnvState,
        }
        return _reply({name: kind.model_json_schema() for name, kind in kinds.items()})

    async def _show_health(self, request: web.Request) -> web.Response:
        self._open_session(request)
        return _reply({"status": "healthy"})

    async def _show_metadata(self, request: web.Request) -> web.Response:
        name = self._open_session(request).environment.server.name
        about = {"name": name, "description": f"the resources server {name} of NeMo Gym", "version": __version__}
        return _reply(about)


def _make_guard(admission: Admission) -> Any:
    """Return middleware that admits only callers allowed in this run, and reports failures as JSON."""

    @web.middleware
    async def guard(request: web.Request, handler: Any) -> web.StreamResponse:
        method: str | None = request.method
        if "upgrade" in request.headers:
            method = None
        headers = [(name.lower(), value) for name, value in request.raw_headers]
        asked = {"headers": headers, "http_version": "1.1", "method": method}
        refusal = await admission.refuse(asked)
        if refusal is None and admission.asks_for_user and request.transport is not None:
            refusal = refuse_other_user(request.transport.get_extra_info("socket"))
        if refusal is not None:
            return web.Response(status=refusal.status_code, body=bytes(refusal.body), content_type="application/json")
        try:
            reply: web.StreamResponse = await handler(request)
            return reply
        except ValidationError as error:
            return _reply({"detail": _list_errors(error)}, 422)
        except GymError as error:
            return _reply({"detail": _describe(error)}, 500)

    return guard


async def _read(kind: type[Any], request: web.Request) -> Any:
    return kind.model_validate_json(await request.read() or b"{}")


def _reply(content: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json")


@asynccontextmanager
async def serve_openenv(
    client: ServerClient, rows: Mapping[str, Path | None], host: str, port: int
) -> AsyncIterator[dict[str, str]]:
    """Serve running resources servers at `host:port`, and yield their URLs by name.

    `rows` maps the name of each server to the JSONL file with the rows for its episodes, or to None.
    """
    environments = {
        name: _Environment(EpisodeServer(client, name), RowCursor([*read_rows(path)] if path else [], str(path)))
        for name, path in rows.items()
    }
    sock = bind(host, port, "openenv")
    rules = AccessRules.from_config(client.global_config_dict)
    admission = Admission(web.Application, host, rules)  # type: ignore[arg-type]  # only its rules are used, not its app
    runner = web.AppRunner(_Gateway(environments).build_app(admission), access_log=None, shutdown_timeout=_STOP_GRACE_S)
    try:
        await runner.setup()
        await web.SockSite(runner, sock).start()
        yield {name: f"{reachable_url(host, sock.getsockname()[1])}/{name}" for name in environments}
    finally:
        await runner.cleanup()
        sock.close()
