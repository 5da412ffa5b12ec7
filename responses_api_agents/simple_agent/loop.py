# SPDX-License-Identifier: Apache-2.0
"""The loop that plays a model against tools, and what it needs: parse replies, keep cookies, call tools.

Nothing here is a server or reads a config: agents pass in how to ask the model. How a rollout begins (its session) and
ends (its reward) is in `app`.
"""

import asyncio
import itertools
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from http.cookies import Morsel
from typing import Any, Literal, TypeVar

import orjson
from aiohttp import ClientResponse
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from nemo_gym.errors import RolloutFailure, ServerCallError, ToolCrashed
from nemo_gym.global_config import NG_CUT_OFF_KEY, NG_TOOL_ERRORS_KEY
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseUsage,
    accumulate_response_usage,
)
from nemo_gym.responses_converter import explain_unanswered_response
from nemo_gym.server_utils import ServerClient, get_response_model, lazy_cookies, read_failure

MAX_SILENT_REPLIES = 3
"""How many replies in a row may hold neither a message nor a call (thinking only, or nothing) before the loop ends."""

RESERVED_TOOL_NAMES = frozenset({"verify", "seed_session", "aggregate_metrics", "reverify_mode", "mcp"})
"""Endpoints of a resources server that are no tools: a model reaches them only if its task offers a tool so named."""

_NOTED_KEYS = (NG_CUT_OFF_KEY, NG_TOOL_ERRORS_KEY, "ng_agent_observations", "ng_trajectory")
_ONE_PATH_SEGMENT = re.compile(r"(?!\.+$)[\w.:-]+")
_SHOWN_CHARACTERS = 200
_CRASH_CHARACTERS = 1000
_DEPTH_THAT_IS_SAFE = 200

ToolErrors = Literal["report", "fail"]
"""What a crashed tool (status 500 or above) means: the rollout goes on and says so, or it is a failure at once."""

ModelT = TypeVar("ModelT", bound=BaseModel)
Ask = Callable[[NeMoGymResponseCreateParamsNonStreaming], Awaitable[NeMoGymResponse]]
NoteToolCall = Callable[[NeMoGymResponseFunctionToolCall, float, float, str | None], None]
"""Takes a tool call, when it started (Unix time), how many seconds it took, and the kind of error it ended in."""
RunCalls = Callable[[Sequence[NeMoGymResponseFunctionToolCall]], Awaitable[list[NeMoGymFunctionCallOutput]]]


class InvalidReply(ServerCallError, RuntimeError):
    """A server answered with something that is not what its endpoint promises."""

    def __init__(self, server: str, path: str, reason: str, start: str) -> None:
        super().__init__(server, path, reason, start)
        self.server = server
        self.path = path
        self.reason = reason
        self.start = start

    def __str__(self) -> str:
        return f"{self.server!r} gave an unusable reply at {self.path}: {self.reason}\nit begins with: {self.start!r}"


# --- the loop ---------------------------------------------------------------------------------------------------------


async def play(
    body: NeMoGymResponseCreateParamsNonStreaming, ask: Ask, run_calls: RunCalls, max_steps: int | None
) -> NeMoGymResponse:
    """Ask the model and run the tools it calls, in turn, until it has answered.

    Returns the last reply with everything that came after the input as its output, and the usage of all turns. It says
    so if `max_steps` ended it.
    """
    given = to_items(body.input)
    said = list[Any]()
    usage: NeMoGymResponseUsage | None = None
    silent_replies = 0
    for step in itertools.count(1):
        reply = await ask(body.model_copy(update={"input": [*given, *said]}))
        said.extend(reply.output)
        usage = accumulate_response_usage(usage, reply.usage) if usage is not None else reply.usage
        calls = find_unanswered_calls(reply.output)
        silent_replies = 0 if calls or has_message(reply.output) else silent_replies + 1
        has_answered = not calls and not silent_replies
        if reply.incomplete_details is not None or has_answered or silent_replies == MAX_SILENT_REPLIES:
            break
        said.extend(await run_calls(calls))
        if max_steps and step >= max_steps:
            note_on(reply, NG_CUT_OFF_KEY, "max_steps")
            break
    reply.output = said
    reply.usage = usage
    return reply


def note_on(reply: NeMoGymResponse, key: str, value: Any) -> None:
    """Put a field that belongs to the rollout's row on the response, for whoever makes the row of it."""
    assert reply.model_extra is not None
    reply.model_extra[key] = value


def take_notes(reply: NeMoGymResponse) -> dict[str, Any]:
    """Take what was noted on `reply` off it again."""
    extra = reply.model_extra
    return {key: extra.pop(key) for key in _NOTED_KEYS if key in extra} if extra else {}


def to_items(given: str | list[Any]) -> list[Any]:
    """Return the input of a request as items."""
    return [make_user_message(given)] if isinstance(given, str) else given


def make_user_message(text: str) -> NeMoGymEasyInputMessage:
    """Return a message to the model."""
    return NeMoGymEasyInputMessage(role="user", content=text, type="message")


def find_unanswered_calls(items: Iterable[Any]) -> list[NeMoGymResponseFunctionToolCall]:
    """Return the function calls among `items` whose output is not among them."""
    items = list(items)
    answered = {item.call_id for item in items if item.type == "function_call_output"}
    return [item for item in items if item.type == "function_call" and item.call_id not in answered]


def has_message(items: Iterable[Any]) -> bool:
    """Return whether the assistant says something in `items`."""
    return any(item.type == "message" and item.role == "assistant" for item in items)


# --- replies of servers -----------------------------------------------------------------------------------------------


async def parse_reply(kind: type[ModelT], reply: ClientResponse, server: str, path: str) -> ModelT:
    """Return the body of `reply` as a `kind`."""
    try:
        return await get_response_model(reply, kind)
    except ValueError as error:
        raise InvalidReply(server, path, _explain_error(error), _quote_start(await reply.read())) from error


async def read_model_reply(reply: ClientResponse, server: str, path: str) -> NeMoGymResponse:
    """Return what a model answered; InvalidReply if the reply is no answer, such as one that reports an error."""
    answer = await parse_reply(NeMoGymResponse, reply, server, path)
    if reason := explain_unanswered_response(answer):
        raise InvalidReply(server, path, f"it is no answer: {reason}", _quote_start(await reply.read()))
    return answer


def _explain_error(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return f"not JSON ({error})"
    problems = [
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors(include_url=False)
    ]
    return "; ".join(problems[:3])


def _quote_start(raw: Any) -> str:
    text = raw[: _SHOWN_CHARACTERS * 4].decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    return text[:_SHOWN_CHARACTERS]


# --- cookies ----------------------------------------------------------------------------------------------------------


class CookieJar:
    """The cookies of one server during a rollout: what a reply sets is added, what was there stays."""

    def __init__(self, cookies: Mapping[str, Any] | None = None) -> None:
        self._known = cookies
        self._last: ClientResponse | None = None

    @property
    def current(self) -> Mapping[str, Any] | None:
        """The cookies as they are now."""
        if self._last is not None:
            reply = self._last
            self._last = None
            cookies = lazy_cookies(reply, self._known)
            if cookies is not None:
                self._known = cookies
            else:
                self.add(reply.cookies)
        return self._known

    def add(self, cookies: Mapping[str, Any]) -> None:
        """Keep what a reply set."""
        current = self.current
        if not current:
            self._known = cookies
        elif cookies and cookies is not current:
            self._known = {**dict(current.items()), **dict(cookies.items())}

    def add_later(self, reply: ClientResponse) -> None:
        """Keep what `reply` set; to make a cookie takes the server some work, which nobody may ever ask for."""
        _ = self.current
        self._last = reply

    def texts(self) -> dict[str, str]:
        """Return the values by name."""
        pairs = self.current.items() if self.current else ()
        return {name: value.value if isinstance(value, Morsel) else value for name, value in pairs}

    def set_on(self, response: Response) -> None:
        """Set these cookies on a response."""
        for name, value in self.texts().items():
            response.set_cookie(name, value)


def is_session_of(cookie_name: str, *servers: str) -> bool:
    """Return whether a cookie holds a session with one of the server instances `servers`."""
    return cookie_name.endswith(tuple([f"___{server}" for server in servers]))


# --- tools ------------------------------------------------------------------------------------------------------------


class Toolbox:
    """Calls the tools of one resources server for a model.

    What the model does wrong, and what a tool answers with an error status, becomes text for the model. A server that
    cannot be reached raises: an outage must not be scored as the model's failure. A tool that crashes is noted, or
    raises ToolCrashed; one that refuses (404, 422) tells the model of its own mistake. One that says that the rollout
    can't be scored any more ends it either way.
    """

    def __init__(
        self,
        client: ServerClient,
        server: str,
        tools: Iterable[Mapping[str, Any]],
        cookies: CookieJar,
        *,
        in_parallel: bool = False,
        tool_errors: ToolErrors = "report",
        note_call: NoteToolCall | None = None,
    ) -> None:
        self._client = client
        self._server = server
        self._cookies = cookies
        self._in_parallel = in_parallel
        self._tool_errors = tool_errors
        self._crashes = list[dict[str, Any]]()
        self._note_call = note_call
        self._offered = {tool["name"] for tool in tools if tool["type"] == "function"}

    async def run(self, calls: Sequence[NeMoGymResponseFunctionToolCall]) -> list[NeMoGymFunctionCallOutput]:
        """Return the outputs of `calls`, in their order."""
        if self._in_parallel and len(calls) > 1:
            return await _gather_in_order(self._run_one(call) for call in calls)
        return [await self._run_one(call) for call in calls]

    def note_crashes_on(self, reply: NeMoGymResponse) -> None:
        """Let `reply` say which tools crashed."""
        if self._crashes:
            note_on(reply, NG_TOOL_ERRORS_KEY, self._crashes)

    def collect_crashes(self, reply: NeMoGymResponse) -> None:
        """Keep what an agent in the model's place says of the tools that it ran itself."""
        known = (reply.model_extra or {}).pop(NG_TOOL_ERRORS_KEY, None)
        self._crashes += known if isinstance(known, list) else ()

    async def _run_one(self, call: NeMoGymResponseFunctionToolCall) -> NeMoGymFunctionCallOutput:
        if self._note_call is None:
            output, _ = await self._call_tool(call)
        else:
            started_at = time.time()
            started = time.perf_counter()
            output, error_type = await self._call_tool(call)
            self._note_call(call, started_at, time.perf_counter() - started, error_type)
        return NeMoGymFunctionCallOutput(type="function_call_output", call_id=call.call_id, output=output)

    async def _call_tool(self, call: NeMoGymResponseFunctionToolCall) -> tuple[str, str | None]:
        """Return what the model is told of the call, and the kind of error if it is one."""
        if not self._may_call(call.name):
            offered = ", ".join(sorted(self._offered)) or "none"
            return format_error(f"Unknown tool {call.name!r}. Available tools: {offered}"), "unknown_tool"
        try:
            arguments = _parse_arguments(call.arguments)
        except ValueError as error:
            return format_error(f"Invalid tool call arguments: {error}"), "invalid_arguments"
        reply = await self._client.post(
            server_name=self._server, url_path=f"/{call.name}", json=arguments, cookies=self._cookies.current
        )
        self._cookies.add_later(reply)
        text = await _read_text(reply)
        if not reply.ok and reply.status >= 500:
            self._note_crash(call.name, reply, text)
        return text, None if reply.ok else f"http_{reply.status}"

    def _note_crash(self, tool: str, reply: ClientResponse, text: str) -> None:
        failure = read_failure(reply)
        # A traceback ends with what matters.
        message = (failure.message if failure else text)[-_CRASH_CHARACTERS:]
        crash = {"tool": tool, "status": reply.status, "message": message}
        if failure is not None and failure.ends_rollout and failure.retryable:
            raise RolloutFailure(failure.kind, failure.message, retryable=True)
        if self._tool_errors == "fail" or (failure is not None and failure.ends_rollout):
            raise ToolCrashed(**crash)
        self._crashes.append(crash)

    def _may_call(self, name: str) -> bool:
        if self._offered:
            return name in self._offered
        # A task without a list of tools leaves the choice to the model, within the tools' own endpoints.
        return name not in RESERVED_TOOL_NAMES and _ONE_PATH_SEGMENT.fullmatch(name) is not None


def format_error(message: str) -> str:
    """Return an error as tools report it to a model."""
    return orjson.dumps({"error": message}).decode()


def _parse_arguments(text: str) -> dict[str, Any]:
    # Models call a tool without parameters with an empty text as well as with an empty object.
    arguments = orjson.loads(text) if text.strip() else {}
    if not isinstance(arguments, dict):
        raise ValueError(f"expected a JSON object, got {type(arguments).__name__}")
    if text.count("{") + text.count("[") > _DEPTH_THAT_IS_SAFE:
        try:
            orjson.dumps(arguments)
        except TypeError as error:
            raise ValueError("the JSON is nested too deep") from error
    return arguments


async def _read_text(reply: ClientResponse) -> str:
    # What comes over a socket is bounded in size by `read` alone.
    raw = await (reply.read() if isinstance(reply, ClientResponse) else reply.content.read())
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    return text if text or reply.ok else format_error(f"The tool answered with status {reply.status} and no text")


async def _gather_in_order(work: Iterable[Awaitable[NeMoGymFunctionCallOutput]]) -> list[NeMoGymFunctionCallOutput]:
    async def one(awaitable: Awaitable[NeMoGymFunctionCallOutput]) -> NeMoGymFunctionCallOutput:
        return await awaitable

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(awaitable)) for awaitable in work]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return [task.result() for task in tasks]
