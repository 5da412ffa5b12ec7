# SPDX-License-Identifier: Apache-2.0
"""The session gateway of model servers: any program plays a rollout, its calls are kept, a trainer fetches them.

    base_url = "http://127.0.0.1:8000/sessions/rollout-17/v1"     an agent's OpenAI client; Anthropic's: without /v1
    POST /sessions/rollout-17/reward  {"reward": 1.0}             whoever scores it
    GET  /sessions/rollout-17                                     the trainer: traces, and the canonical rollout

Every model server that is one process has it, made with the first request. A config with a block `session_gateway` also
lets API keys stand for sessions, and `enabled: false` there takes the gateway away. What sessions are is in
`nemo_gym._training.sessions`; `docs/guides/train-with-a-gateway.md` goes through it.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from nemo_gym._capture.records import DIALECT_OF_PATH
from nemo_gym._process.policy_version import require_run_token
from nemo_gym._serving.guard import json_reply
from nemo_gym._util.aio import in_thread
from nemo_gym._util.known_secrets import describe_error
from nemo_gym._util.rollout_paths import check_rollout_id

if TYPE_CHECKING:
    from nemo_gym._training.session_record import GatewaySession, SessionCall
    from nemo_gym._training.sessions import SessionBook

__all__ = ["RewardRequest", "SessionFailureRequest", "SessionGatewayConfig", "SessionRequest", "add_session_routes"]

Dispatch = Callable[[Request], Awaitable[Response]]
FiniteNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]

_CALL: ContextVar["SessionCall | None"] = ContextVar("nemo_gym_session_call", default=None)
find_session_call = _CALL.get
"""Return the call that is being answered, if it belongs to a session."""
_RETRY_AFTER_S = 5


class SessionGatewayConfig(BaseModel):
    """The block `session_gateway` of a model server's config."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool = True
    max_sessions: PositiveInt = 10_000
    """How many sessions are kept, open and ended; another one is refused with 429."""
    max_memory_bytes: PositiveInt = 2 * 2**30
    """How many bytes of requests and answers are kept; when there are more, calls are refused with 429."""
    idle_timeout_s: PositiveFloat = 1800.0
    """A session without a call for so long, and without a final reward, has failed."""
    max_duration_s: PositiveFloat = 86_400.0
    """A session without a final reward after so long has failed, whatever it does."""
    keep_ended_s: PositiveFloat = 86_400.0
    """An ended session that nobody has deleted for so long is deleted."""


class SessionRequest(BaseModel):
    """A session to open."""

    model_config = ConfigDict(extra="forbid")

    id: str | None = None
    """None: one is made up."""
    task_index: Annotated[int, Field(ge=0)] = 0
    """With `agent`, the group of the rollout."""
    rollout_index: Annotated[int, Field(ge=0)] = 0
    agent: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Whatever the trainer wants back."""


class RewardRequest(BaseModel):
    """The reward of a session."""

    model_config = ConfigDict(extra="forbid")

    reward: FiniteNumber
    components: dict[str, FiniteNumber] = Field(default_factory=dict)
    final: bool = True
    """False: more is to come; the reward may be set again, and counts for nothing until it is final."""


class SessionFailureRequest(BaseModel):
    """Why a session has no reward."""

    model_config = ConfigDict(extra="forbid")

    message: str = ""
    kind: str = "agent"


class SessionRoutes(BaseRoute):
    """The routes of a gateway that no config asks for, made with the first request for one: most servers see none."""

    def __init__(self, handlers: Mapping[str, Dispatch]) -> None:
        self._handlers = handlers
        self._router: APIRouter | None = None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Claim every path of the gateway."""
        path = scope.get("path", "")
        is_ours = scope["type"] == "http" and (path == "/sessions" or path.startswith("/sessions/"))
        return (Match.FULL if is_ours else Match.NONE), {}

    def url_path_for(self, name: str, /, **path_params: Any) -> NoReturn:
        """Know no route by name."""
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the route of the request answer it."""
        if self._router is None:
            self._router = APIRouter()
            add_session_routes(self._router, SessionGatewayConfig(), self._handlers)
        # The router of the app has left its own name in the scope.
        await self._router({**scope, "router": self._router}, receive, send)


def add_session_routes(
    app: FastAPI | APIRouter, config: SessionGatewayConfig, handlers: Mapping[str, Dispatch]
) -> dict[str, Dispatch]:
    """Give `app` the routes of the gateway; return `handlers` for calls that name their session by its key."""
    from nemo_gym._training.sessions import KEY_PREFIX, SessionBook, SessionLimits

    limits = SessionLimits(**config.model_dump(exclude={"enabled"}))
    book = SessionBook(limits)
    _add_control_routes(app, book)

    def by_path(path: str, handler: Dispatch) -> Dispatch:
        async def handle(request: Request) -> Response:
            return await _answer_in_session(book, request.path_params["session_id"], path, handler, request)

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
            return await _answer_in_session(book, session_id, path, handler, request)

        return handle

    for path, handler in handlers.items():
        app.post(f"/sessions/{{session_id}}{path}")(by_path(path, handler))
    return {path: by_key(path, handler) for path, handler in handlers.items()}


async def _answer_in_session(
    book: "SessionBook", session_id: str, path: str, handler: Dispatch, request: Request
) -> Response:
    """Let `handler` answer, and keep the call."""
    try:
        session, call = book.begin_call(_check_id(session_id), DIALECT_OF_PATH[path])
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
            call.error = call.error or "the model has not answered"
        book.end_call(session, call)


def _read_key(request: Request) -> str:
    bearer = request.headers.get("authorization", "")
    return request.headers.get("x-api-key") or (bearer[7:] if bearer[:7].lower() == "bearer " else "")


def _check_id(session_id: str) -> str:
    """Return `session_id` if it can stand in a path, else raise ValueError."""
    try:
        return check_rollout_id(session_id)
    except ValueError as error:
        raise ValueError(str(error).replace("rollout id", "session id", 1)) from None


def _refuse(error: Exception) -> Response:
    from nemo_gym._training.sessions import SessionRefused

    if not isinstance(error, SessionRefused | ValueError):
        raise error
    status = error.status if isinstance(error, SessionRefused) else 422
    reply = json_reply(status, {"detail": str(error)})
    # The clients of OpenAI and Anthropic repeat a 409 unless they are told that it does not help.
    reply.headers["x-should-retry"] = "true" if status == 429 else "false"
    if status == 429:
        reply.headers["retry-after"] = str(_RETRY_AFTER_S)
    return reply


def _add_control_routes(app: FastAPI | APIRouter, book: "SessionBook") -> None:
    """Add what trainers and verifiers call. An agent may not: who plays does not decide on the reward."""
    from nemo_gym._training.session_record import SessionLabels

    def answer(request: Request, act: Callable[[], Any]) -> Any:
        require_run_token(request)
        try:
            return act()
        except Exception as error:
            return _refuse(error)

    def tell(session: "GatewaySession") -> Response:
        return json_reply(200, session.to_json(with_traces=False))

    async def create(request: Request, body: SessionRequest) -> Any:
        """Open a session."""

        def act() -> Response:
            wanted = None if body.id is None else _check_id(body.id)
            labels = SessionLabels(body.task_index, body.rollout_index, body.agent, body.metadata)
            session = book.create(wanted, labels)
            path = f"/sessions/{session.id}"
            return json_reply(200, {"id": session.id, "api_key": session.key, "path": path})

        return answer(request, act)

    async def list_sessions(
        request: Request,
        done: bool | None = None,
        after: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> Any:
        """List sessions, oldest first, from a cursor on."""

        def act() -> Response:
            found = book.list_sessions(done=done, after=after, limit=limit)
            listed = [session.to_json(with_traces=False) for session in found]
            cursors = [session.end_number if done else session.number for session in found]
            return json_reply(200, {"sessions": listed, "next": cursors[-1] if cursors else after})

        return answer(request, act)

    async def fetch(request: Request, session_id: str) -> Any:
        """Return a session: the traces of its calls and, once it has ended, its trainable rollout."""
        found = answer(request, lambda: book.find(session_id))
        if isinstance(found, Response):
            return found
        # A long session takes a while, and other calls wait meanwhile.
        told = await in_thread(lambda: json_reply(200, found.to_json(with_traces=True)))
        found.was_fetched = found.was_fetched or found.status != "open"
        return told

    async def set_reward(request: Request, session_id: str, body: RewardRequest) -> Any:
        """Score a session, which ends it unless the reward is not final."""
        return answer(
            request, lambda: tell(book.set_reward(session_id, body.reward, body.components, final=body.final))
        )

    async def fail(request: Request, session_id: str, body: SessionFailureRequest) -> Any:
        """End a session without a reward."""
        return answer(request, lambda: tell(book.fail(session_id, body.kind, body.message)))

    async def delete(request: Request, session_id: str) -> Any:
        """Forget a session."""

        def act() -> Response:
            book.delete(session_id)
            return json_reply(200, {"deleted": session_id})

        return answer(request, act)

    app.post("/sessions")(create)
    app.get("/sessions")(list_sessions)
    app.get("/sessions/{session_id}")(fetch)
    app.delete("/sessions/{session_id}")(delete)
    app.post("/sessions/{session_id}/reward")(set_reward)
    app.post("/sessions/{session_id}/failure")(fail)
