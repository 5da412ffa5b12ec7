# SPDX-License-Identifier: Apache-2.0
"""The session gateway of model servers: any program plays a rollout, its calls are recorded, a trainer fetches them.

    POST /sessions  {"id": "rollout-17"}                          from the trainer: opens it, returns its api_key
    base_url = "http://127.0.0.1:8000/sessions/rollout-17/v1"     for an agent's OpenAI client; Anthropic's: without /v1
    POST /sessions/rollout-17/reward  {"reward": 1.0}             from whoever scores it
    GET  /sessions/rollout-17                                     for the trainer: traces and the canonical rollout

Every model server that runs as one process has a gateway, created on first use. A `session_gateway` block in its config
also lets API keys name sessions; `enabled: false` in that block turns the gateway off. Sessions are implemented in
`nemo_gym._training.sessions`; `docs/guides/train-with-a-gateway.md` is the guide.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from nemo_gym._servers.http.guard import json_reply
from nemo_gym._servers.policy_versions.of_this_server import require_run_token
from nemo_gym._training.capture.call_records import DIALECT_OF_PATH
from nemo_gym._util.known_secrets import describe_error
from nemo_gym._util.rollout_paths import check_rollout_id

if TYPE_CHECKING:
    from nemo_gym._training.session_record import SessionCall
    from nemo_gym._training.sessions import SessionBook

__all__ = ["RewardRequest", "SessionFailureRequest", "SessionGatewayConfig", "SessionRequest", "add_session_routes"]

P = ParamSpec("P")
Dispatch = Callable[[Request], Awaitable[Response]]
FiniteNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]

_CALL: ContextVar["SessionCall | None"] = ContextVar("nemo_gym_session_call", default=None)
find_session_call = _CALL.get
"""Return the call being answered, if it belongs to a session."""
_RETRY_AFTER_S = 5


class SessionGatewayConfig(BaseModel):
    """The block `session_gateway` of a model server's config."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool = True
    max_sessions: PositiveInt = 10_000
    """How many sessions are kept, open and ended, before calls that would open another are refused with 429."""
    max_memory_bytes: PositiveInt = 2 * 2**30
    """How many bytes of requests and answers are kept; beyond that, calls are refused with 429."""
    idle_timeout_s: PositiveFloat = 1800.0
    """A session fails if it has no call and no final reward for this long."""
    max_duration_s: PositiveFloat = 86_400.0
    """A session fails if it has no final reward after this time, active or not."""
    keep_ended_s: PositiveFloat = 86_400.0
    """How long an ended session is kept before it is deleted."""
    open_on_first_call: bool = False
    """Whether a call with a new id opens a session, whose key is then the one that came with this call."""


class SessionRequest(BaseModel):
    """A session to open."""

    model_config = ConfigDict(extra="forbid")

    id: str | None = None
    """None: the gateway generates one."""
    task_index: Annotated[int, Field(ge=0)] = 0
    """Together with `agent`, the group of the rollout."""
    rollout_index: Annotated[int, Field(ge=0)] = 0
    agent: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Anything the trainer wants returned with the session."""


class RewardRequest(BaseModel):
    """The reward of a session."""

    model_config = ConfigDict(extra="forbid")

    reward: FiniteNumber
    components: dict[str, FiniteNumber] = Field(default_factory=dict)
    final: bool = True
    """False: the reward is provisional; it can be set again, and does not count until it is final."""


class SessionFailureRequest(BaseModel):
    """Why a session has no reward."""

    model_config = ConfigDict(extra="forbid")

    message: str = ""
    kind: str = "agent"


class SessionRoutes(BaseRoute):
    """The routes of a gateway that no config asks for. They are created on first use: most servers need none."""

    path = "/sessions/{path:path}"  # tools that list an app's routes read it

    def __init__(self, handlers: Mapping[str, Dispatch]) -> None:
        self._handlers = handlers
        self._router: APIRouter | None = None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match every path of the gateway."""
        path = scope.get("path", "")
        is_ours = scope["type"] == "http" and (path == "/sessions" or path.startswith("/sessions/"))
        return (Match.FULL if is_ours else Match.NONE), {}

    def url_path_for(self, name: str, /, **path_params: Any) -> NoReturn:
        """Raise NoMatchFound: the routes have no names."""
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the gateway's own router."""
        if self._router is None:
            self._router = APIRouter()
            add_session_routes(self._router, SessionGatewayConfig(), self._handlers)
        # The scope still holds the app's router.
        await self._router({**scope, "router": self._router}, receive, send)


def add_session_routes(
    app: FastAPI | APIRouter, config: SessionGatewayConfig, handlers: Mapping[str, Dispatch]
) -> dict[str, Dispatch]:
    """Add the gateway's routes to `app`; return `handlers` wrapped to accept API keys that name a session."""
    from nemo_gym._training.sessions import KEY_PREFIX, SessionBook, SessionLimits

    book = SessionBook(SessionLimits(**config.model_dump(exclude={"enabled"})))
    _ControlRoutes(book).add_to(app)

    def by_path(path: str, handler: Dispatch) -> Dispatch:
        async def handle(request: Request) -> Response:
            session_id = request.path_params["session_id"]
            return await _answer_in_session(book, session_id, _read_key(request), path, handler, request)

        return handle

    def by_key(path: str, handler: Dispatch) -> Dispatch:
        async def handle(request: Request) -> Response:
            key = _read_key(request)
            if not key.startswith(KEY_PREFIX):
                return await handler(request)
            try:
                session_id = book.find_by_key(key).id
            except Exception as error:
                return _refuse(error)
            return await _answer_in_session(book, session_id, key, path, handler, request)

        return handle

    for path, handler in handlers.items():
        app.post(f"/sessions/{{session_id}}{path}")(by_path(path, handler))
    return {path: by_key(path, handler) for path, handler in handlers.items()}


async def _answer_in_session(
    book: "SessionBook", session_id: str, key: str, path: str, handler: Dispatch, request: Request
) -> Response:
    """Let `handler` answer, and record the call."""
    try:
        session, call = book.begin_call(_check_id(session_id), DIALECT_OF_PATH[path], key)
    except Exception as error:
        return _refuse(error)
    token = _CALL.set(call)
    try:
        call.request = await request.body()
        response = await handler(request)
        if response.status_code >= 400:
            call.error = call.error or f"status {response.status_code}"
        return response
    except BaseException as error:
        call.error = call.error or describe_error(error)
        raise
    finally:
        _CALL.reset(token)
        if call.answer is None:
            call.error = call.error or "the model did not answer"
        book.end_call(session, call)


def _read_key(request: Request) -> str:
    if key := request.headers.get("x-api-key"):
        return key
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else ""


def _check_id(session_id: str) -> str:
    """Return `session_id` if it is valid in a path; else raise ValueError."""
    try:
        return check_rollout_id(session_id)
    except ValueError as error:
        raise ValueError(str(error).replace("rollout id", "session id", 1)) from None


def _refuse(error: Exception) -> Response:
    """Return the reply for a refusal; raise any other error."""
    from nemo_gym._training.sessions import SessionRefused

    if not isinstance(error, SessionRefused | ValueError):
        raise error
    status = 422
    if isinstance(error, SessionRefused):
        status = error.status
    reply = json_reply(status, {"detail": str(error)})
    # The OpenAI and Anthropic clients retry a 409 unless told not to.
    reply.headers["x-should-retry"] = "false"
    if status == 429:
        reply.headers["x-should-retry"] = "true"
        reply.headers["retry-after"] = str(_RETRY_AFTER_S)
    return reply


def _reply_to_refusals(route: Callable[P, Awaitable[Any]]) -> Callable[P, Awaitable[Any]]:
    """Turn the refusals that `route` raises into replies."""

    @wraps(route)
    async def handle(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return await route(*args, **kwargs)
        except Exception as error:
            return _refuse(error)

    return handle


class _ControlRoutes:
    """The routes for trainers and verifiers. Agents may not call them: whoever plays does not decide on the reward."""

    def __init__(self, book: "SessionBook") -> None:
        self._book = book

    def add_to(self, app: FastAPI | APIRouter) -> None:
        app.post("/sessions")(self.create)
        app.get("/sessions")(self.list_sessions)
        app.get("/sessions/{session_id}")(self.fetch)
        app.delete("/sessions/{session_id}")(self.delete)
        app.post("/sessions/{session_id}/reward")(self.set_reward)
        app.post("/sessions/{session_id}/failure")(self.fail)

    @_reply_to_refusals
    async def create(self, request: Request, body: SessionRequest) -> Any:
        """Open a session."""
        from nemo_gym._training.session_record import SessionLabels

        require_run_token(request)
        labels = SessionLabels(body.task_index, body.rollout_index, body.agent, body.metadata)
        session = self._book.create(None if body.id is None else _check_id(body.id), labels)
        return json_reply(200, {"id": session.id, "api_key": session.key, "path": f"/sessions/{session.id}"})

    @_reply_to_refusals
    async def list_sessions(
        self,
        request: Request,
        done: bool | None = None,
        after: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> Any:
        """List sessions after a cursor, oldest first."""
        require_run_token(request)
        found = self._book.list_sessions(done=done, after=after, limit=limit)
        listed = [session.to_json(with_traces=False) for session in found]
        if found:
            last = found[-1]
            after = last.number
            if done and last.end_number is not None:
                after = last.end_number
        return json_reply(200, {"sessions": listed, "next": after})

    async def fetch(self, request: Request, session_id: str) -> Any:
        """Return a session: the traces of its calls and, once it has ended, its trainable rollout."""
        require_run_token(request)
        try:
            session = self._book.find(session_id)
        except Exception as error:
            return _refuse(error)
        # In a thread: a long session takes a while, and other calls must not wait for it.
        reply = await asyncio.to_thread(lambda: json_reply(200, session.to_json(with_traces=True)))
        session.was_fetched = session.was_fetched or session.status != "open"
        return reply

    @_reply_to_refusals
    async def set_reward(self, request: Request, session_id: str, body: RewardRequest) -> Any:
        """Set the reward of a session; a final reward ends it."""
        require_run_token(request)
        session = self._book.set_reward(session_id, body.reward, body.components, final=body.final)
        return json_reply(200, session.to_json(with_traces=False))

    @_reply_to_refusals
    async def fail(self, request: Request, session_id: str, body: SessionFailureRequest) -> Any:
        """End a session without a reward."""
        require_run_token(request)
        session = self._book.fail(session_id, body.kind, body.message)
        return json_reply(200, session.to_json(with_traces=False))

    @_reply_to_refusals
    async def delete(self, request: Request, session_id: str) -> Any:
        """Delete a session."""
        require_run_token(request)
        self._book.delete(session_id)
        return json_reply(200, {"deleted": session_id})
