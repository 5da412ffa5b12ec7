# SPDX-License-Identifier: Apache-2.0
"""Find an Aviary environment by name or class, pass it tool calls, and turn its messages into observations.

This module loads the library, so only the episode processes import it, not the server itself.
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
"""The prefix of the ids of the library's own task datasets."""

# Importing an extra takes seconds, so import all installed ones in the process that episodes are forked from.
for _module, _ in TASK_DATASET_REGISTRY.values():
    with contextlib.suppress(ImportError):
        importlib.import_module(_module)


class UnusableTask(ValueError):
    """No environment can be made from the row."""


class PlayedEnvironment:
    """Wraps an environment so that its actions are calls and texts, as `ToolStepServer` passes them."""

    def __init__(self, environment: Environment[Any], *, handle_tool_exc: bool = False) -> None:
        """`handle_tool_exc` reports what a tool raises to the model, unless the environment says otherwise."""
        self._environment = environment
        self._parameters: dict[str, tuple[set[str], set[str]]] = {}
        self.tools: list[dict[str, Any]] = []
        """The tools of the episode, as function definitions; empty before `reset`."""
        if handle_tool_exc:
            run = partial(environment.exec_tool_calls, handle_tool_exc=True)
            environment.exec_tool_calls = run  # type: ignore[method-assign]

    async def reset(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Start the episode."""
        messages, tools = await self._environment.reset()
        self.tools = [_to_function(tool) for tool in tools]
        for tool in tools:
            required = tool.info.parameters.required if tool.info.parameters else ()
            self._parameters[tool.info.name] = set(required), set(tool.info.get_properties())
        return _to_observation(messages, ()), {}

    async def step(
        self, calls: Sequence[Any], text: str
    ) -> tuple[list[dict[str, Any]], float, bool, bool, dict[Any, Any]]:
        """Run the calls; pass on a reply without calls as a plain message."""
        action = Message(role="assistant", content=text)
        if calls:
            action = ToolRequestMessage(content=text or None, tool_calls=[self._to_call(*call) for call in calls])
        messages, reward, done, truncated = await self._environment.step(action)
        return _to_observation(messages, [call_id for *_, call_id in calls]), reward, done, truncated, {}

    async def close(self) -> None:
        """Let the environment free what it holds."""
        await self._environment.close()

    def _to_call(self, name: str, arguments: dict[str, Any] | None, error: str | None, call_id: str) -> ToolCall:
        """Return the call, under the library's name for invalid calls if its arguments do not fit the tool."""
        required, known = self._parameters.get(name, (set(), set()))
        if arguments is None or (name in self._parameters and not required <= arguments.keys() <= known):
            name = INVALID_TOOL_NAME
            arguments = {}
        return ToolCall(id=call_id, function=ToolCallFunction(name=name, arguments=arguments))


def make(task: dict[str, Any]) -> PlayedEnvironment:
    """Return the environment named in a row's `environment`, made with its `arguments`."""
    name = task.get("environment")
    arguments = task.get("arguments") or {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise UnusableTask(
            f"a row needs a text `environment` and a mapping `arguments`, not {name!r:.100} and {arguments!r:.100}.\n"
            "hint: `gym env check --resources-server aviary` shows valid rows"
        )
    kind = find_class(name)
    if issubclass(kind, Environment):
        environment = kind(**_convert_models(kind, arguments))
    else:
        dataset = _load_dataset(name, json.dumps(arguments, sort_keys=True))
        index = task.get("index")
        environment = dataset.get_new_env() if index is None else dataset.get_new_env_by_idx(index)
    return PlayedEnvironment(environment, handle_tool_exc=bool(task.get("handle_tool_exc")))


def find_class(name: str) -> type[Environment[Any]] | type[TaskDataset[Any]]:
    """Return the class of an id, such as `dummy`, `tasks/gsm8k` or `package.module:Class`."""
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
        package = f"fhaviary[{extra}]" if name in known else "its package"
        raise UnusableTask(
            f"the environment {name!r} cannot be loaded: {error}.\n"
            f"hint: add {package} to `requirements` in this server's config"
        ) from error
    # A row must not be able to call other installed code.
    if not (inspect.isclass(found) and issubclass(found, Environment | TaskDataset)):
        raise UnusableTask(f"{name!r} is {found!r:.100}, not an Environment or TaskDataset of Aviary")
    return found


@lru_cache(maxsize=4)
def _load_dataset(name: str, arguments: str) -> TaskDataset[Any]:
    """Return a dataset; later episodes of this process reuse it."""
    kind = find_class(name)
    try:
        return kind(**_convert_models(kind, json.loads(arguments)))
    except (OSError, ConnectionError) as error:
        raise UnusableTask(
            f"the tasks of {name!r} cannot be loaded: {type(error).__name__}: {error}.\n"
            "hint: they come from the Hugging Face Hub; to work offline, download them first and set HF_HOME"
        ) from error


def _convert_models(kind: type, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with mappings converted to the pydantic models that the constructor expects."""
    hints = get_type_hints(kind.__init__)
    converted = dict(arguments)
    for name, value in arguments.items():
        models = [one for one in (hints.get(name), *get_args(hints.get(name))) if inspect.isclass(one)]
        model = next((one for one in models if issubclass(one, BaseModel)), None)
        if model is not None and isinstance(value, dict):
            converted[name] = model(**value)
    return converted


def _to_function(tool: Tool) -> dict[str, Any]:
    function = tool.model_dump(by_alias=True, exclude_none=True)["function"]
    parameters = {"type": "object", "properties": {}}
    return {"type": "function", "parameters": parameters, "strict": False, **function}


def _to_observation(messages: Sequence[Message], call_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return messages as a model receives them: outputs of its calls, and other messages."""
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
