# SPDX-License-Identifier: Apache-2.0
"""An environment of Aviary as a step server plays it: found by its name or class, told calls, heard as messages.

It loads the library, so the server itself does not import it: only the processes of episodes do.
"""

import contextlib
import importlib
import inspect
import json
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, get_args, get_type_hints

from aviary.core import Environment, Message, TaskDataset, Tool, ToolCall, ToolRequestMessage, ToolResponseMessage
from aviary.env import ENV_REGISTRY, TASK_DATASET_REGISTRY
from aviary.tools.base import INVALID_TOOL_NAME, ToolCallFunction
from pydantic import BaseModel

TASKS = "tasks/"
"""What the id of a dataset of tasks begins with, if the library knows it by name."""

# The process that all episodes are forked from loads the extras that are installed: to import one takes seconds.
for _module, _ in TASK_DATASET_REGISTRY.values():
    with contextlib.suppress(ImportError):
        importlib.import_module(_module)


class UnusableTask(ValueError):
    """A row that no environment can be made of."""


class PlayedEnvironment:
    """An environment whose actions are calls and texts, as `ToolStepServer` has them."""

    def __init__(self, environment: Environment[Any], *, handle_tool_exc: bool = False) -> None:
        """`handle_tool_exc` tells the model what a tool raises, where the environment does not say otherwise."""
        self._environment = environment
        self._parameters: dict[str, tuple[set[str], set[str]]] = {}
        self.tools: list[dict[str, Any]] = []
        """The tools of the episode, as functions; empty before `reset`."""
        if handle_tool_exc:
            run = partial(environment.exec_tool_calls, handle_tool_exc=True)
            environment.exec_tool_calls = run  # type: ignore[method-assign]

    async def reset(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Begin the episode."""
        messages, tools = await self._environment.reset()
        self.tools = [_to_function(tool) for tool in tools]
        for tool in tools:
            required = tool.info.parameters.required if tool.info.parameters else ()
            self._parameters[tool.info.name] = set(required), set(tool.info.get_properties())
        return _to_observation(messages, ()), {}

    async def step(
        self, calls: Sequence[Any], text: str
    ) -> tuple[list[dict[str, Any]], float, bool, bool, dict[Any, Any]]:
        """Run the calls; a reply without any is told as it is."""
        action = Message(role="assistant", content=text)
        if calls:
            action = ToolRequestMessage(content=text or None, tool_calls=[self._to_call(*call) for call in calls])
        messages, reward, done, truncated = await self._environment.step(action)
        return _to_observation(messages, [call_id for *_, call_id in calls]), reward, done, truncated, {}

    async def close(self) -> None:
        """Let the environment free what it holds."""
        await self._environment.close()

    def _to_call(self, name: str, arguments: dict[str, Any] | None, error: str | None, call_id: str) -> ToolCall:
        """Return the call, under the library's name for invalid ones if its arguments cannot be given to the tool."""
        required, known = self._parameters.get(name, (set(), set()))
        if arguments is None or (name in self._parameters and not required <= arguments.keys() <= known):
            name, arguments = INVALID_TOOL_NAME, {}
        return ToolCall(id=call_id, function=ToolCallFunction(name=name, arguments=arguments))


def make(task: dict[str, Any]) -> PlayedEnvironment:
    """Return the environment that a row names in `environment`, made with its `arguments`."""
    name, arguments = task.get("environment"), task.get("arguments") or {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise UnusableTask(
            f"a row needs a text `environment` and a mapping `arguments`, not {name!r:.100} and {arguments!r:.100}.\n"
            "hint: `gym env check --resources-server aviary` shows rows that can be played"
        )
    kind = find_class(name)
    if issubclass(kind, Environment):
        environment = kind(**_read_models(kind, arguments))
    else:
        dataset, index = _load_dataset(name, json.dumps(arguments, sort_keys=True)), task.get("index")
        environment = dataset.get_new_env() if index is None else dataset.get_new_env_by_idx(index)
    return PlayedEnvironment(environment, handle_tool_exc=bool(task.get("handle_tool_exc")))


def find_class(name: str) -> type[Environment[Any]] | type[TaskDataset[Any]]:
    """Return the class of an id: `dummy`, `tasks/gsm8k`, or `package.module:Class`."""
    known = ENV_REGISTRY | {f"{TASKS}{one}": place for one, place in TASK_DATASET_REGISTRY.items()}
    module, separator, attribute = name.partition(":")
    if name in known:
        module, attribute = known[name]
    elif not separator:
        raise UnusableTask(
            f"there is no environment {name!r}.\navailable: {', '.join(sorted(known))}\n"
            "hint: name your own as `package.module:Class`"
        )
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        extra = "gsm8k" if "gsm8k" in module else "hotpotqa"
        what = f"fhaviary[{extra}]" if name in known else "the package that has it"
        raise UnusableTask(
            f"the environment {name!r} cannot be loaded: {error}.\n"
            f"hint: add {what} to `requirements` in the config of this server"
        ) from error
    # A row must not be able to call anything else that is installed.
    if not (inspect.isclass(found) and issubclass(found, Environment | TaskDataset)):
        raise UnusableTask(f"{name!r} is no Environment and no TaskDataset of Aviary, but {found!r:.100}")
    return found


@lru_cache(maxsize=4)
def _load_dataset(name: str, arguments: str) -> TaskDataset[Any]:
    """Return a dataset, which the later episodes of this process use too."""
    kind = find_class(name)
    try:
        return kind(**_read_models(kind, json.loads(arguments)))
    except (OSError, ConnectionError) as error:
        raise UnusableTask(
            f"the tasks of {name!r} cannot be loaded: {type(error).__name__}: {error}.\n"
            "hint: they come from the Hugging Face Hub; without a network, download them first and set HF_HOME"
        ) from error


def _read_models(kind: type, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments in which mappings are the pydantic models that the constructor of a class asks for."""
    hints = get_type_hints(kind.__init__)
    read = dict(arguments)
    for name, value in arguments.items():
        models = [one for one in (hints.get(name), *get_args(hints.get(name))) if inspect.isclass(one)]
        model = next((one for one in models if issubclass(one, BaseModel)), None)
        if model is not None and isinstance(value, dict):
            read[name] = model(**value)
    return read


def _to_function(tool: Tool) -> dict[str, Any]:
    function = tool.model_dump(by_alias=True, exclude_none=True)["function"]
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "parameters": parameters, "strict": False, **function}


def _to_observation(messages: Sequence[Message], call_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return messages as a model is given them: answers to its calls, and what else it is told."""
    items: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, ToolResponseMessage) and message.tool_call_id in call_ids:
            call_id = message.tool_call_id
            items.append({"type": "function_call_output", "call_id": call_id, "output": message.content})
        else:
            role = message.role if message.role in ("system", "assistant") else "user"
            items.append({"role": role, "content": _to_content(message)})
    return items


def _to_content(message: Message) -> str | list[dict[str, Any]]:
    content = message.deserialized_content
    if not isinstance(content, list):
        return content or ""
    return [
        {"type": "input_text", "text": part["text"]}
        if part["type"] == "text"
        else {"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"}
        for part in content
    ]
