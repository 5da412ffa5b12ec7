# SPDX-License-Identifier: Apache-2.0
"""The agent that most environments use: a model, the tools of one resources server, and a loop between them.

It also holds what other agents share: `EnvironmentAgent`, whose rollouts seed a session, respond and have the response
verified, and `ModelAgent`, which gives a model one turn. The loop itself is in `loop`.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from fastapi import Request, Response
from pydantic import ConfigDict
from starlette.types import Scope

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest, ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.rollout_correlation import task_id_from_run_body
from nemo_gym.server_utils import get_response_json, raise_for_status, takes_models
from responses_api_agents.simple_agent.loop import (
    CookieJar,
    Toolbox,
    ToolErrors,
    is_session_of,
    note_on,
    parse_reply,
    play,
    read_model_reply,
    take_notes,
    to_items,
)

if TYPE_CHECKING:
    from responses_api_agents.simple_agent.observations import RolloutNotes

__all__ = [
    "EnvironmentAgent",
    "EnvironmentAgentConfig",
    "ModelAgent",
    "ModelAgentConfig",
    "ModelServerRef",
    "ResourcesServerRef",
    "SimpleAgent",
    "SimpleAgentConfig",
    "SimpleAgentRunRequest",
    "SimpleAgentVerifyRequest",
    "SimpleAgentVerifyResponse",
    "task_fields",
]


class EnvironmentAgentConfig(BaseResponsesAPIAgentConfig):
    """Config of an agent that uses one resources server."""

    resources_server: ResourcesServerRef
    """The environment: its tools, its sessions and its verifier."""


class ModelAgentConfig(EnvironmentAgentConfig):
    """Config of an agent that uses one model and one resources server."""

    model_server: ModelServerRef
    """The model that the agent calls."""


class SimpleAgentConfig(ModelAgentConfig):
    """Config of the simple agent."""

    max_steps: int | None = None
    """Maximum model calls per response; None or 0: no limit."""
    tool_calls_in_parallel: bool = False
    """Run the tool calls of one turn in parallel instead of in order. For tools whose order does not matter."""
    tool_errors: ToolErrors = "report"
    """A tool that crashes (status 500 or above): `report` it in the row, or `fail` the rollout at once."""


class SimpleAgentRunRequest(BaseRunRequest):
    """A task; the environment's own fields are carried along."""

    model_config = ConfigDict(extra="allow")


class SimpleAgentVerifyRequest(BaseVerifyRequest):
    """A task and the response to it."""

    model_config = ConfigDict(extra="allow")


class SimpleAgentVerifyResponse(BaseVerifyResponse):
    """A task, the response to it, its reward and whatever the verifier adds."""

    model_config = ConfigDict(extra="allow")


class EnvironmentAgent(SimpleResponsesAPIAgent):
    """An agent around one resources server: override `responses`."""

    config: EnvironmentAgentConfig
    # Stands next to `aggregate_metrics`, which it describes; a subclass with another one does not inherit it.
    _metrics_by_resources_server: ClassVar[bool] = True

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> SimpleAgentVerifyResponse:  # type: ignore[override]
        """Run one rollout: seed the session, respond, verify."""
        task = task_fields(body, as_models=takes_models(self.server_client))
        cookies = CookieJar(self._resources_cookies(request.cookies))
        seeded = await self.server_client.post(
            server_name=self.config.resources_server.name, url_path="/seed_session", json=task, cookies=cookies.current
        )
        await raise_for_status(seeded)
        cookies.add_later(seeded)
        response = await self._call_own_responses(request, body, cookies)
        return await self._verify_response(task, response, cookies)

    async def _seed_session(self, task: dict[str, Any], cookies: CookieJar) -> dict[str, Any]:
        """Begin the session; return what the resources server says about it."""
        server = self.config.resources_server.name
        path = "/seed_session"
        seeded = await self.server_client.post(server_name=server, url_path=path, json=task, cookies=cookies.current)
        await raise_for_status(seeded)
        cookies.add(seeded.cookies)
        told: dict[str, Any] = await get_response_json(seeded) or {}
        return told

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        """Return metrics over many rollouts, as the resources server computes them."""
        if self.config.skip_verification:
            return await super().aggregate_metrics(body)
        server = self.config.resources_server.name
        path = "/aggregate_metrics"
        reply = await self.server_client.post(server_name=server, url_path=path, json=body)
        await raise_for_status(reply)
        return await parse_reply(AggregateMetrics, reply, server, path)

    async def _call_own_responses(
        self, request: Request | None, body: SimpleAgentRunRequest, cookies: CookieJar
    ) -> NeMoGymResponse:
        """Return what `responses` makes of the task: the call that a client would make, without HTTP."""
        rollout_id = self.rollout_id_from_run(body)
        path = "/v1/responses"
        own_request = OwnRequest(
            # A test's stand-in for a request may have cookies and nothing else.
            request if isinstance(request, Request) else None,
            path=path if rollout_id is None else self.url_path_for_run(path, body),
            path_params={} if rollout_id is None else {"rollout_id": rollout_id},
            jar=cookies,
        )
        own_response = OwnResponse(self._open_notes(body, rollout_id))
        given = {"request": own_request, "response": own_response, "body": body.responses_create_params}
        answer = await self.responses(**_select_arguments(type(self).responses, given))
        if own_response.cookies:
            cookies.add(self._resources_cookies(own_response.cookies))
        response = answer if isinstance(answer, NeMoGymResponse) else NeMoGymResponse.model_validate(answer)
        if own_response.notes is not None:
            asked = to_items(body.responses_create_params.input)
            for key, value in own_response.notes.as_row_fields(asked, response).items():
                note_on(response, key, value)
        return response

    def _open_notes(self, body: BaseRunRequest, rollout_id: str | None) -> "RolloutNotes | None":
        """Return the notes for observations of the rollout; None if they are not wanted."""
        if rollout_id is None or not self._model_call_capture_enabled():
            return None
        from responses_api_agents.simple_agent.observations import RolloutNotes

        return RolloutNotes(self.config.name, task_id_from_run_body(body) or rollout_id, rollout_id)

    async def _verify_response(
        self, task: dict[str, Any], response: NeMoGymResponse, cookies: CookieJar
    ) -> SimpleAgentVerifyResponse:
        """Return the response with its reward."""
        # Neither sent to the verifier nor left to it: it may return its own response.
        notes = take_notes(response)
        result = await self._request_reward(task, response, cookies)
        if notes:
            assert result.model_extra is not None
            result.model_extra.update(notes)
        return result

    async def _request_reward(
        self, task: dict[str, Any], response: NeMoGymResponse, cookies: CookieJar
    ) -> SimpleAgentVerifyResponse:
        # Every field of the response, set or not: an agent may have built items that rely on their defaults.
        whole = response if takes_models(self.server_client) else response.model_dump()
        answered = {**task, "response": whole}
        if self.config.skip_verification:
            unscored = {"reward": self.config.skip_verification_reward, "verification_skipped": True}
            return SimpleAgentVerifyResponse.model_validate({**answered, **unscored})
        server = self.config.resources_server.name
        path = "/verify"
        reply = await self.server_client.post(server_name=server, url_path=path, json=answered, cookies=cookies.current)
        await raise_for_status(reply)
        return await parse_reply(SimpleAgentVerifyResponse, reply, server, path)

    def _resources_cookies(self, cookies: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return those of `cookies` that are the resources server's: neither this agent's own nor another server's."""
        if not cookies:
            return cookies
        others = self._other_servers()
        mine = {name: value for name, value in cookies.items() if not is_session_of(name, *others)}
        return cookies if len(mine) == len(cookies) else mine

    def _other_servers(self) -> tuple[str, ...]:
        """Return the servers whose session cookies the resources server must not see."""
        return (self.config.name,)


class ModelAgent(EnvironmentAgent):
    """An agent that gives a model one turn; it leaves the calls the model makes to the verifier."""

    config: ModelAgentConfig

    async def responses(  # type: ignore[override]
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        """Return one reply of the model."""
        tool_cookies, model_cookies = self._split_cookies(request)
        notes = find_notes(response)
        answer = await self._ask(self.url_path_for_request("/v1/responses", request), model_cookies, notes, body)
        if not isinstance(response, OwnResponse):  # a rollout continues with the jar that it passed in
            tool_cookies.set_on(response)
            model_cookies.set_on(response)
        return answer

    async def _ask(
        self,
        path: str,
        cookies: CookieJar,
        notes: "RolloutNotes | None",
        body: NeMoGymResponseCreateParamsNonStreaming,
    ) -> NeMoGymResponse:
        """Call the model once."""
        server = self.config.model_server.name
        reply = await self.server_client.post(server_name=server, url_path=path, json=body, cookies=cookies.current)
        if not reply.ok:
            await raise_for_status(reply)
        cookies.add_later(reply)
        answer = await read_model_reply(reply, server, path)
        if notes is not None:
            notes.note_model_call(self.config.model_server, answer)
        return answer

    def _split_cookies(self, request: Request) -> tuple[CookieJar, CookieJar]:
        """Return the caller's cookies for the resources server and for the model server."""
        if isinstance(request, OwnRequest):
            return request.jar, CookieJar()
        model = self.config.model_server.name
        for_model = {name: value for name, value in request.cookies.items() if is_session_of(name, model)}
        return CookieJar(self._resources_cookies(request.cookies)), CookieJar(for_model or None)

    def _other_servers(self) -> tuple[str, ...]:
        return (self.config.name, self.config.model_server.name)


class SimpleAgent(ModelAgent):
    """Runs a model against the tools of a resources server until the model has answered."""

    config: SimpleAgentConfig

    async def responses(  # type: ignore[override]
        self, request: Request, response: Response, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        """Return everything the model said and the tools answered."""
        tool_cookies, model_cookies = self._split_cookies(request)
        notes = find_notes(response)
        toolbox = Toolbox(
            self.server_client,
            self.config.resources_server.name,
            body.tools,
            tool_cookies,
            in_parallel=self.config.tool_calls_in_parallel,
            tool_errors=self.config.tool_errors,
            note_call=None if notes is None else notes.note_tool_call,
        )
        ask = functools.partial(self._ask, self.url_path_for_request("/v1/responses", request), model_cookies, notes)
        answer = await play(body, ask, toolbox.run, self.config.max_steps)
        toolbox.note_crashes_on(answer)
        if not isinstance(response, OwnResponse):  # a rollout continues with the jar that it passed in
            tool_cookies.set_on(response)
            model_cookies.set_on(response)
        return answer


def task_fields(body: BaseRunRequest, *, as_models: bool = False) -> dict[str, Any]:
    """Return what the resources server gets of a task: its own fields in full, the create params as set."""
    params: Any = body.responses_create_params
    own = body.model_dump(exclude={"responses_create_params"})
    return {**own, "responses_create_params": params if as_models else params.model_dump(exclude_unset=True)}


class OwnRequest(Request):
    """A request of an agent to itself, whose cookies are in `jar`; its scope is built on first use."""

    def __init__(self, caller: Request | None, *, path: str, path_params: dict[str, str], jar: CookieJar) -> None:
        self._caller = caller
        self._path = path
        self._path_params = path_params
        self.jar = jar
        self._scope: Scope | None = None
        super().__init__({"type": "http"})

    @property
    def scope(self) -> Scope:
        if self._scope is None:
            given = self._caller.scope if self._caller is not None else {}
            path = self._path
            raw = self._path.encode()
            own = {"type": "http", "method": "POST", "path": path, "raw_path": raw, "path_params": self._path_params}
            self._scope = {"query_string": b"", **given, **own, "headers": []}
        return self._scope

    @scope.setter
    def scope(self, scope: Scope) -> None:
        if len(scope) > 1:  # not the minimal one that the constructor needs
            self._scope = scope

    @property
    def path_params(self) -> dict[str, Any]:
        return self._path_params

    @property
    def cookies(self) -> dict[str, str]:
        return self.jar.texts()


class OwnResponse(Response):
    """Where an agent that calls itself leaves its notes and its cookies, as values instead of headers."""

    def __init__(self, notes: "RolloutNotes | None" = None) -> None:
        super().__init__()
        self.cookies: dict[str, str] = {}
        self.notes = notes

    def set_cookie(self, key: str, value: str = "", *_: Any, **__: Any) -> None:
        self.cookies[key] = value


def find_notes(response: Response) -> "RolloutNotes | None":
    """Return the notes for observations of a rollout; None for a call from outside, or if they are not wanted."""
    return response.notes if isinstance(response, OwnResponse) else None


def _select_arguments(method: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return those of `given` that `method` takes: authors choose among `request`, `response` and `body`."""
    names = _list_parameters(method)
    return given if names is None else {name: value for name, value in given.items() if name in names}


@functools.lru_cache(maxsize=256)
def _list_parameters(method: Callable[..., Any]) -> frozenset[str] | None:
    parameters = inspect.signature(method).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    return frozenset(parameters)


if __name__ == "__main__":
    SimpleAgent.run_webserver()
