# SPDX-License-Identifier: Apache-2.0
"""Play episodes with the library alone: lines with `task` and `turns` in, what each step gave out.

It is run by the interpreter of the server's virtual environment and uses nothing of ours but the caves.
"""

import asyncio
import importlib
import json
import random
import sys

from aviary.core import DummyEnv, Message, TaskDataset, ToolCall, ToolRequestMessage
from aviary.tools.base import ToolCallFunction


def make(task):
    name, arguments = task["environment"], task.get("arguments", {})
    if name.startswith("tasks/"):
        return TaskDataset.from_name(name.removeprefix("tasks/"), **arguments).get_new_env()
    if name == "dummy":
        return DummyEnv(**arguments)
    if name == "calculator":
        return importlib.import_module("aviary.envs.gsm8k.env").CalculatorEnv(**arguments)
    module_name, class_name = name.split(":")
    module = importlib.import_module(module_name)
    if class_name == "Caves":
        return module.Caves(**arguments).get_new_env_by_idx(task["index"])
    return module.Cave(module.Rules(**arguments.pop("rules", {})), **arguments)


def to_action(turn, numbers):
    if isinstance(turn, str):
        return Message(role="assistant", content=turn)
    calls = []
    for name, arguments in turn:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        calls.append(ToolCall(id=f"call_{next(numbers)}", function=ToolCallFunction(name=name, arguments=text)))
    return ToolRequestMessage(tool_calls=calls)


async def play(task, turns):
    random.seed(task["seed"])
    environment = make(task)
    begun, tools = await environment.reset()
    told = [message.content for message in begun]  # now: an environment may add to its list of messages
    steps, numbers = [], iter(range(1000))
    for turn in turns:
        messages, reward, done, truncated = await environment.step(to_action(turn, numbers))
        in_order = sorted(messages, key=lambda one: int(getattr(one, "tool_call_id", "call_999").removeprefix("call_")))
        steps.append([[message.content for message in in_order], reward, done, truncated])
        if done or truncated:
            break
    return {"begun": told, "tools": [t.info.name for t in tools], "steps": steps}


if __name__ == "__main__":
    for line in sys.stdin:
        episode = json.loads(line)
        print(json.dumps(asyncio.run(play(episode["task"], episode["turns"]))))
