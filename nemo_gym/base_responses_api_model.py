# SPDX-License-Identifier: Apache-2.0
"""Base classes of model servers: OpenAI Responses, Chat Completions and Anthropic Messages in front of any LLM.

A server implements `responses` and `chat_completions`; the third dialect and all streaming are derived from them.
A stream is the finished reply, replayed as events. Outside programs, such as the SDKs, get errors as these APIs send
them (`nemo_gym._servers.http.api_errors`), and can list models, count tokens, and fetch or continue a response.
"""

import logging
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar

from fastapi import Body as Body, FastAPI, HTTPException, Request
from fastapi.responses import Response
from pydantic import BaseModel, PrivateAttr, TypeAdapter, ValidationError, model_validator

from nemo_gym._servers.direct_calls.json_bodies import build_validation_error, parse_json, require_json, validate_body
from nemo_gym._servers.direct_calls.object_request import ModelJsonResponse, ObjectRequest, read_params
from nemo_gym._servers.http.api_errors import OUTSIDE_API
from nemo_gym._servers.http.guard import describe, json_reply
from nemo_gym._servers.http.kept_responses import KeptResponses, list_input_items
from nemo_gym._servers.policy_versions.announcing import VersionCell
from nemo_gym._servers.policy_versions.marks import mark_answer, pick_marks
from nemo_gym._servers.policy_versions.of_this_server import add_version_routes, open_version_cell
from nemo_gym._transport.failures import HEADER as FAILURE_HEADER, FailureKind, build_failure
from nemo_gym._transport.stand_ins import find_config, takes_request
from nemo_gym._util.rollout_paths import ROLLOUT_ID
from nemo_gym._wire.converters.anthropic import AnthropicMessagesRequest
from nemo_gym._wire.schema.format_errors import (
    InvalidModelReply,
    explain_unanswered_completion,
    explain_unanswered_response,
)
from nemo_gym._wire.streaming import (
    stream_completion,
    stream_completion_failure,
    stream_message,
    stream_message_failure,
    stream_response,
)
from nemo_gym._wire.token_estimates import estimate_tokens
from nemo_gym.anthropic_converter import messages_to_responses_create_params, response_to_anthropic_message
from nemo_gym.chat_streaming import sanitize_streaming_chat_body
from nemo_gym.config_types import BaseRunServerInstanceConfig
from nemo_gym.errors import GymError
from nemo_gym.model_call_capture import *  # noqa: F403  others import its names from here
from nemo_gym.model_call_capture import ModelCallCaptureConfig, install_model_call_capture
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseOutputText,
)
from nemo_gym.responses_streaming import (
    sanitize_streaming_responses_body,
    synthesize_responses_failure_sse,
    validate_streaming_responses_params,
)
from nemo_gym.server_utils import BaseServer, SimpleServer
from nemo_gym.session_gateway import (
    Dispatch,
    SessionGatewayConfig,
    SessionRoutes,
    add_session_routes,
    find_session_call,
)
from nemo_gym.token_id_capture import capture_tokens

LOG = logging.getLogger(__name__)


class BaseResponsesAPIModelConfig(BaseRunServerInstanceConfig):
    """Config of a model server."""

    session_gateway: SessionGatewayConfig | None = None
    """How programs can run rollouts through `/sessions/ID/v1`, for others to fetch.

    None: the defaults, without per-session API keys; off if the server has several processes.
    """

    @model_validator(mode="before")
    @classmethod
    def _keep_sessions_together(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        gateway = given.get("session_gateway")
        is_several = any((given.get(key) or 1) > 1 for key in ("num_workers", "num_replicas"))
        if gateway is None:
            if is_several:
                return {**given, "session_gateway": {"enabled": False}}
            return given
        if not (gateway.get("enabled", True) if isinstance(gateway, dict) else getattr(gateway, "enabled", False)):
            return given
        if is_several:
            raise ValueError(
                "session_gateway keeps its sessions in one process, but this server is set to have several.\n"
                "hint: leave num_workers and num_replicas at 1; if you need more, put a scaled server behind this one"
            )
        # Each worker of a run would have its own sessions, on ports that nobody knows.
        return {"run_once": True, **given}


class BaseResponsesAPIModel(BaseServer):
    """Any server of type `responses_api_models`."""

    config: BaseResponsesAPIModelConfig


@cache
def _make_adapter(model: type[BaseModel]) -> TypeAdapter[Any]:
    return TypeAdapter(model)


class SimpleResponsesAPIModel(BaseResponsesAPIModel, SimpleServer):
    """A model server: override `responses` and `chat_completions`, each with or without a `request` parameter."""

    is_chat_only: ClassVar[bool] = False
    """True for a model that knows no Responses API, so that what a request continues has to be kept here."""
    _failure_kind: ClassVar[FailureKind] = "model_endpoint"

    config: BaseResponsesAPIModelConfig
    _policy_version: VersionCell = PrivateAttr(default_factory=open_version_cell)
    _kept_responses: KeptResponses = PrivateAttr(default_factory=KeptResponses)

    def setup_webserver(self) -> FastAPI:
        """Return the app with the endpoints of all three dialects."""
        app = self.new_app()
        self.setup_session_middleware(app)
        # Capture is the outermost layer, so that it sees what callers send and receive.
        settings = find_config(self.server_client) or {}
        capture = ModelCallCaptureConfig.from_global_config(settings)
        install_model_call_capture(app, capture, model_server_name=self.config.name, global_config_dict=settings)
        handlers: dict[str, Dispatch] = {
            "/v1/chat/completions": self.chat_completions_dispatch,
            "/v1/responses": self.responses_dispatch,
            "/v1/messages": self.messages,
        }
        if self.config.session_gateway is None:
            app.router.routes.append(SessionRoutes(handlers))
        elif self.config.session_gateway.enabled:
            handlers = add_session_routes(app, self.config.session_gateway, handlers)
        for path, handler in handlers.items():
            app.post(path)(handler)
        app.post("/v1/messages/count_tokens")(self.count_message_tokens)
        app.get("/v1/models")(self.list_models)
        app.get("/v1/models/{model_id:path}")(self.retrieve_model)
        app.get("/v1/responses/{response_id}")(self.retrieve_response)
        app.delete("/v1/responses/{response_id}")(self.delete_response)
        add_version_routes(app, self._policy_version)
        return app

    @abstractmethod
    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        """Answer a Chat Completions request."""

    @abstractmethod
    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        """Answer a Responses request."""

    # --- the three dialects -------------------------------------------------------------------------------------------

    async def responses_dispatch(self, request: Request) -> Response:
        """`POST /v1/responses`: strict without `stream`; with it, lenient and answered as events."""
        sent = read_params(request)
        if sent is not None and sent.previous_response_id is None and not sent.background:
            return _make_json_response(await self._dispatch_answer(self.responses, request, sent))
        raw = await _read_json(request)
        whole = self._insert_history(raw)
        if self.is_outside(request):
            whole = _complete_tools(whole)
        if not (isinstance(raw, dict) and raw.get("stream")):
            body = validate_body(_make_adapter(NeMoGymResponseCreateParamsNonStreaming), whole)
            return _make_json_response(await self._answer_and_keep(request, body, raw))
        params, names = sanitize_streaming_responses_body(whole)
        try:
            asked = validate_streaming_responses_params(params)
        except ValidationError as error:
            raise build_validation_error(error, params) from error

        async def answer() -> Any:
            reply = await self._answer_and_keep(request, asked, raw)
            return _require_answer(reply, explain_unanswered_response(reply))

        return await self._dispatch_stream(
            request,
            answer,
            lambda reply: stream_response(reply, names),
            lambda message: map(str.encode, synthesize_responses_failure_sse(message, model=asked.model)),
        )

    async def chat_completions_dispatch(self, request: Request) -> Response:
        """`POST /v1/chat/completions`: answer with one object, or with chunks if `stream` is true."""
        raw = await _read_json(request)
        adapter = _make_adapter(NeMoGymChatCompletionCreateParamsNonStreaming)
        if not (isinstance(raw, dict) and raw.get("stream") is True):
            return await self._dispatch_chat(request, validate_body(adapter, raw))
        content, include_usage = sanitize_streaming_chat_body(raw)
        body = validate_body(adapter, content)

        async def answer() -> Any:
            reply = await self._dispatch_answer(self.chat_completions, request, body)
            await capture_tokens(reply)  # chunks carry the token ids only in pieces
            return _require_answer(reply, explain_unanswered_completion(reply))

        return await self._dispatch_stream(
            request,
            answer,
            lambda reply: stream_completion(reply, include_usage),
            stream_completion_failure,
        )

    async def _dispatch_chat(self, request: Request, body: BaseModel) -> Response:
        """Answer with one object. A mere schema mismatch must not look like a crash of this server.

        An endpoint's reply that is not a chat completion is a 502; a request that chat cannot express is a 422.
        """
        try:
            return _make_json_response(await self._dispatch_answer(self.chat_completions, request, body))
        except ValidationError as error:
            if error.title in _REQUEST_SCHEMAS:
                raise build_validation_error(error, body.model_dump(exclude_unset=True)) from error
            cause: Exception = _describe_unfit_reply(error)
        except (GymError, NotImplementedError) as error:
            cause = error
        failure = build_failure(cause, self._failure_kind, f"{self.config.name}{request.scope['path']}")
        if isinstance(cause, GymError) and failure.kind != "model_reply_invalid":
            raise cause
        LOG.error("%s: a chat completion failed: %s", self.config.name, cause)
        reply = json_reply(422 if isinstance(cause, NotImplementedError) else 502, {"detail": str(cause)})
        reply.headers[FAILURE_HEADER] = failure.encode()
        return reply

    async def messages(self, request: Request) -> Response:
        """`POST /v1/messages`: Anthropic's dialect, by way of `responses`."""
        asked = validate_body(_make_adapter(AnthropicMessagesRequest), await _read_json(request))

        async def answer() -> dict[str, Any]:
            reply = await self._dispatch_answer(self.responses, request, messages_to_responses_create_params(asked))
            await capture_tokens(reply)  # the Anthropic dialect has no field for them
            _require_answer(reply, explain_unanswered_response(reply))
            message = response_to_anthropic_message(NeMoGymResponse.model_validate(reply), asked.model)
            return {**message, **pick_marks(reply)}

        if asked.stream:
            return await self._dispatch_stream(request, answer, stream_message, stream_message_failure)
        return json_reply(200, await answer())

    async def _dispatch_answer(self, handler: Callable[..., Awaitable[Any]], request: Request, body: BaseModel) -> Any:
        """Return the handler's answer, marked with the policy version in force if one was announced."""
        # Hot path: pydantic's lookup of a private attribute takes longer than all of this.
        version: VersionCell = (self.__pydantic_private__ or {})["_policy_version"]
        began = version.get()
        if takes_request(getattr(handler, "__func__", handler)):
            reply = await handler(request=request, body=body)
        else:
            reply = await handler(body=body)
        if began is not None:
            reply = mark_answer(reply, began, version.get())
        if (call := find_session_call()) is not None:
            call.note_answer(reply)
        return reply

    async def _dispatch_stream(
        self,
        request: Request,
        answer: Callable[[], Awaitable[Any]],
        events: Callable[[Any], Iterator[bytes]],
        failed: Callable[[str], Iterator[bytes]],
    ) -> Response:
        """Return the reply as events. A failure is an event too, for our own client; for others it is a status."""
        try:
            body = b"".join(events(await answer()))
        except Exception as error:
            if self.is_outside(request):
                raise
            reason = describe(error, self.config.name)
            is_expected = isinstance(error, HTTPException | GymError)
            trace = None if is_expected else error
            LOG.error("%s: a streamed call failed: %s", self.config.name, reason, exc_info=trace)
            if (call := find_session_call()) is not None:
                call.error = reason
            body = b"".join(failed(reason))
        return Response(body, media_type="text/event-stream", headers={"cache-control": "no-cache"})

    # --- responses that are kept --------------------------------------------------------------------------------------

    def _has_responses_backend(self) -> bool:
        """Return whether `responses` itself handles what a request continues (`previous_response_id`)."""
        return not self.is_chat_only

    async def _call_responses_backend(self, request: Request, method: str, response_id: str) -> dict[str, Any]:
        """Fetch (GET) or delete (DELETE) a response of the endpoint."""
        raise HTTPException(404, f"the model server {self.config.name!r} cannot look up the response {response_id!r}")

    @staticmethod
    def is_outside(request: Request) -> bool:
        """Return whether a request comes from an outside program, which gets errors as its API sends them."""
        return not isinstance(request, ObjectRequest) and request.scope.get(OUTSIDE_API) is not None

    @classmethod
    def is_outside_of_rollouts(cls, request: Request) -> bool:
        """Return whether a request comes from an outside program that plays no rollout.

        In a rollout, a conversation that outgrows the context is its end; elsewhere it is an error of the caller.
        """
        is_in_rollout = find_session_call() is not None or request.scope.get(ROLLOUT_ID) is not None
        return cls.is_outside(request) and not is_in_rollout

    def _insert_history(self, raw: Any) -> Any:
        """Return a Responses request with the conversation that it continues; refuse one that would lose it."""
        if not isinstance(raw, dict) or self._has_responses_backend():
            return raw
        if raw.get("background"):
            raise HTTPException(
                400,
                f"`background` is not supported: the endpoint of {self.config.name!r} speaks Chat Completions, and "
                "answers at once. hint: leave it out",
            )
        previous = raw.get("previous_response_id")
        if previous is None:
            return raw
        history = None
        if isinstance(previous, str):
            history = self._kept_responses.read_history(previous)
        if history is None:
            raise HTTPException(
                400,
                f"the response {previous!r} of `previous_response_id` is not kept here, or not all of its "
                "conversation. The latest responses to outside programs are, unless they were asked for with "
                "`store: false`. hint: send the whole conversation as `input`",
            )
        rest = {name: value for name, value in raw.items() if name != "previous_response_id"}
        return {**rest, "input": [*history, *list_input_items(raw.get("input"))]}

    async def _answer_and_keep(self, request: Request, body: BaseModel, raw: Mapping[str, Any]) -> Any:
        """Answer a Responses request; keep the answer to an outside program, which may ask for it or continue it."""
        reply = await self._dispatch_answer(self.responses, request, body)
        if isinstance(reply, NeMoGymResponse) and self.is_outside(request) and not self._has_responses_backend():
            reply.previous_response_id = raw.get("previous_response_id")
            _complete_log_probs(reply)
            if raw.get("store") is not False and explain_unanswered_response(reply) is None:
                self._kept_responses.keep(reply.id, reply.model_dump_json().encode(), raw)
        return reply

    async def retrieve_response(self, request: Request, response_id: str) -> Response:
        """`GET /v1/responses/ID`: a response of the endpoint, or one that is kept here."""
        if self._has_responses_backend():
            found = await self._call_responses_backend(request, "GET", _check_response_id(response_id))
            return json_reply(200, found)
        kept = self._kept_responses.find(response_id)
        if kept is None:
            raise _build_unknown_response(response_id)
        return Response(kept, media_type="application/json")

    async def delete_response(self, request: Request, response_id: str) -> Response:
        """`DELETE /v1/responses/ID`."""
        if self._has_responses_backend():
            gone = await self._call_responses_backend(request, "DELETE", _check_response_id(response_id))
            return json_reply(200, gone)
        if not self._kept_responses.delete(response_id):
            raise _build_unknown_response(response_id)
        return json_reply(200, {"id": response_id, "object": "response", "deleted": True})

    # --- models and token counts --------------------------------------------------------------------------------------

    def _describe_model(self) -> dict[str, Any]:
        """Return the one model that answers, in the shapes of both APIs."""
        config: Any = self.config
        name = str(getattr(config, "openai_model", None) or getattr(config, "model", None) or config.name)
        openai = {"id": name, "object": "model", "created": 0, "owned_by": "nemo-gym"}
        anthropic = {"type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z", "lifecycle": "active"}
        return {**openai, **anthropic}

    async def list_models(self) -> Response:
        """`GET /v1/models`: the one model; it answers whatever model a request names."""
        model = self._describe_model()
        ends = {"has_more": False, "first_id": model["id"], "last_id": model["id"]}
        return json_reply(200, {"object": "list", "data": [model], **ends})

    async def retrieve_model(self, model_id: str) -> Response:
        """`GET /v1/models/ID`."""
        model = self._describe_model()
        if model_id == model["id"]:
            return json_reply(200, model)
        raise HTTPException(404, f"there is no model {model_id!r} here; {model['id']!r} answers every request")

    async def count_tokens(self, request: Request, params: NeMoGymResponseCreateParamsNonStreaming) -> int | None:
        """Return how many tokens the prompt of a request has; None if only an estimate is possible."""
        return None

    async def count_message_tokens(self, request: Request) -> Response:
        """`POST /v1/messages/count_tokens`: exact if the model's tokenizer can be asked, else an estimate."""
        asked = validate_body(_make_adapter(AnthropicMessagesRequest), await _read_json(request))
        params = messages_to_responses_create_params(asked)
        count = await self.count_tokens(request, params)
        return json_reply(200, {"input_tokens": estimate_tokens(params) if count is None else count})


async def _read_json(request: Request) -> Any:
    if not isinstance(request, ObjectRequest):  # building its scope is slow
        require_json(request.scope)
    return parse_json(await request.body())


def _complete_tools(raw: Any) -> Any:
    """Return a request whose function tools all have `strict`: our schema requires it, OpenAI's API does not."""
    tools = raw.get("tools") if isinstance(raw, dict) else None
    if not isinstance(tools, list):
        return raw
    is_function = [isinstance(tool, dict) and tool.get("type") == "function" for tool in tools]
    completed = [{"strict": None, **tool} if is_one else tool for tool, is_one in zip(tools, is_function, strict=True)]
    return {**raw, "tools": completed}


def _complete_log_probs(reply: NeMoGymResponse) -> None:
    """Give every text a list of log-probs, if an empty one: the oldest SDK that we support requires it."""
    for item in reply.output:
        for part in getattr(item, "content", None) or []:
            if isinstance(part, NeMoGymResponseOutputText) and part.logprobs is None:
                part.logprobs = []


def _check_response_id(response_id: str) -> str:
    """Return an id that cannot lead to another path of the endpoint."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", response_id) is None:
        raise _build_unknown_response(response_id)
    return response_id


def _build_unknown_response(response_id: str) -> HTTPException:
    return HTTPException(
        404, f"there is no response {response_id!r} here; only the latest are kept, unless `store` was false"
    )


_REQUEST_SCHEMAS = {
    NeMoGymChatCompletionCreateParamsNonStreaming.__name__,
    NeMoGymResponseCreateParamsNonStreaming.__name__,
}


def _describe_unfit_reply(error: ValidationError) -> InvalidModelReply:
    problems = "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()[:5])
    return InvalidModelReply(
        f"the model endpoint's reply is not a {error.title}: {problems}\n"
        "hint: look at the endpoint's reply; a proxy or another API version may have changed its fields"
    )


def _require_answer(reply: Any, reason: str | None) -> Any:
    """Return `reply`; raise InvalidModelReply if a `reason` says why it contains no answer.

    Used for dialects that cannot tell this from an empty answer. Elsewhere the caller sees what the handler sent.
    """
    if reason is not None:
        raise InvalidModelReply(f"the model's reply contains no answer: {reason}")
    return reply


def _make_json_response(reply: Any) -> Response:
    if isinstance(reply, Response):
        return reply
    if isinstance(reply, BaseModel):
        return ModelJsonResponse(reply)
    return json_reply(200, reply)
