# SPDX-License-Identifier: Apache-2.0
"""Test helpers for servers: replies and tool calls to score, servers in this process, a scripted model."""

import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from omegaconf import OmegaConf
from pydantic import PrivateAttr

from nemo_gym._servers.direct_calls import running_apps as registry
from nemo_gym.base_resources_server import SimpleResourcesServer
from nemo_gym.base_responses_api_agent import SimpleResponsesAPIAgent
from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
    NeMoGymResponseReasoningItem,
    NeMoGymResponseUsage,
    NeMoGymSummary,
)
from nemo_gym.server_utils import ServerClient, SimpleServer

_numbers = itertools.count(1)
# Apps in this process are found by address; a host name that no resolver knows cannot be confused with a real one.
_TEST_HOST = "nemo-gym-testing"

_HEAD = BaseServerConfig(host=_TEST_HOST, port=0)
S = TypeVar("S", bound=SimpleServer)
ClassWithConfig = tuple[type[SimpleServer], dict[str, Any]]

_TYPES: tuple[tuple[type[SimpleServer], str], ...] = (
    (SimpleResourcesServer, "resources_servers"),
    (SimpleResponsesAPIAgent, "responses_api_agents"),
    (SimpleResponsesAPIModel, "responses_api_models"),
)


def message(text: str) -> NeMoGymResponseOutputMessage:
    """Build an assistant message."""
    return NeMoGymResponseOutputMessage(
        id=f"msg_{next(_numbers)}", content=[NeMoGymResponseOutputText(text=text, annotations=[])]
    )


def tool_call(
    name: str, arguments: dict[str, Any] | str | None = None, *, call_id: str | None = None
) -> NeMoGymResponseFunctionToolCall:
    """Build a function call; `arguments` given as text are used unchanged, valid or not."""
    call_id = call_id or f"call_{next(_numbers)}"
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {})
    return NeMoGymResponseFunctionToolCall(
        arguments=arguments, call_id=call_id, name=name, id=call_id, status="completed"
    )


def reasoning(text: str) -> NeMoGymResponseReasoningItem:
    """Build a reasoning item."""
    return NeMoGymResponseReasoningItem(id=f"rs_{next(_numbers)}", summary=[NeMoGymSummary(text=text)])


def reply(*parts: Any, usage: NeMoGymResponseUsage | None = None, **fields: Any) -> NeMoGymResponse:
    """Build a model's response from `parts`: strings become assistant messages, the rest are output items."""
    output = [message(part) if isinstance(part, str) else part for part in parts]
    defaults = {
        "id": f"resp_{next(_numbers)}",
        "created_at": 0.0,
        "model": "scripted",
        "object": "response",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    return NeMoGymResponse(**{**defaults, "output": output, "usage": usage, **fields})


def asked(prompt: str | Sequence[Any], **params: Any) -> NeMoGymResponseCreateParamsNonStreaming:
    """Build the create params of a task."""
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    return NeMoGymResponseCreateParamsNonStreaming(input=list(prompt), **params)


class ScriptedModel(SimpleResponsesAPIModel):
    """A model server that gives the replies of a script in order, and fails when they run out."""

    config: BaseResponsesAPIModelConfig
    _replies: list[NeMoGymResponse] = PrivateAttr(default_factory=list)
    _requests: list[NeMoGymResponseCreateParamsNonStreaming] = PrivateAttr(default_factory=list)

    @property
    def requests(self) -> list[NeMoGymResponseCreateParamsNonStreaming]:
        """The requests so far."""
        return self._requests

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        self._requests.append(body)
        if not self._replies:
            raise AssertionError(f"the scripted model was called {len(self._requests)} times; its script is shorter")
        return self._replies.pop(0)

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        raise AssertionError("the scripted model answers /v1/responses only")


def scripted_model(*replies: NeMoGymResponse | str | tuple[str, dict[str, Any]]) -> ScriptedModel:
    """Build a model that gives one of `replies` per call: a response, a text, or a tool call as name and arguments."""
    model = build_server(ScriptedModel, name="policy_model")
    for answer in replies:
        if isinstance(answer, tuple):
            answer = reply(tool_call(*answer))
        elif not isinstance(answer, NeMoGymResponse):
            answer = reply(answer)
        model._replies.append(answer)
    return model


def agent_config(resources_server: str, **fields: Any) -> dict[str, Any]:
    """Build the config of an agent that runs `policy_model` in the environment `resources_server`."""
    return {
        "resources_server": {"type": "resources_servers", "name": resources_server},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        **fields,
    }


def server_config(cls: type[SimpleServer], *, name: str = "test_server", **fields: Any) -> Any:
    """Build the config object that `cls` declares, from `fields` and what every config needs."""
    declared: Any = cls.model_fields["config"].annotation
    return declared(**{"host": _TEST_HOST, "port": next(_numbers), "entrypoint": "app.py", "name": name, **fields})


def build_server(cls: type[S], *, name: str = "test_server", **config: Any) -> S:
    """Build a server of class `cls` without other servers."""
    client = ServerClient(head_server_config=_HEAD, global_config_dict=OmegaConf.create({}))
    return cls(config=server_config(cls, name=name, **config), server_client=client)


@asynccontextmanager
async def running(
    *,
    global_config: dict[str, Any] | None = None,
    **servers: SimpleServer | type[SimpleServer] | ClassWithConfig,
) -> AsyncIterator[ServerClient]:
    """Run `servers` in this process, without sockets; the client calls them by name.

    A server is a class, a class with its config fields, or an instance.
    """
    instances = {name: _make_instance(name, given) for name, given in servers.items()}
    config = OmegaConf.create({**(global_config or {}), **{n: _build_config_block(s) for n, s in instances.items()}})
    client = ServerClient(head_server_config=_HEAD, global_config_dict=config)
    async with AsyncExitStack() as stack:
        for server in instances.values():
            server.server_client = client
            app = server.build_complete_app(config)
            await stack.enter_async_context(app.router.lifespan_context(app))
            registry.host_app(server.config.host, server.config.port, app)
            stack.callback(registry.unhost_app, server.config.host, server.config.port)
        yield client


def _make_instance(name: str, given: Any) -> SimpleServer:
    if isinstance(given, SimpleServer):
        given.config.name = name
        given.config.host = _TEST_HOST
        given.config.port = next(_numbers)
        return given
    fields: dict[str, Any] = {}
    if isinstance(given, tuple):
        given, fields = given
    server: SimpleServer = build_server(given, name=name, **fields)
    return server


def _build_config_block(server: SimpleServer) -> dict[str, Any]:
    server_type = next(name for base, name in _TYPES if isinstance(server, base))
    impl = type(server).__module__.split(".")[-2:][0]
    return {server_type: {impl: server.config.model_dump(mode="json", exclude={"name"})}}
