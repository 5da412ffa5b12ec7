# SPDX-License-Identifier: Apache-2.0
"""Play programs as rollouts, in this process: a model that is a script, and a bench with one file to repair."""

import os
import sys
from pathlib import Path
from typing import Any

import yaml
from fastapi import HTTPException
from pydantic import Field

from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import ResponsesConverter
from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import agent_config, reply, running, tool_call
from responses_api_agents.program_agent.app import ProgramAgent
from responses_api_models.replay_model.app import build_chat_completion

CONFIGS = Path(__file__).parent.parent / "configs"
REPAIRED = "def add(a, b):\n    return a + b\n"
BROKEN = "def add(a, b):\n    return a - b\n"
USAGE = {
    "input_tokens": 10,
    "output_tokens": 5,
    "total_tokens": 15,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}
_CONVERTER = ResponsesConverter(return_token_id_information=True)


class ActingModelConfig(BaseResponsesAPIModelConfig):
    """Config of a model that acts by a script."""

    acts: list[Any] = Field(default_factory=lambda: ["I have nothing to say."])
    """What it does after so many results of tools: a text, or the name and the arguments of a tool."""
    fails_after: int | None = None
    """After so many results of tools it is out of order."""


class ActingModel(SimpleResponsesAPIModel):
    """A model that acts by a script; a caller without tools gets a title."""

    config: ActingModelConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        items = [] if isinstance(body.input, str) else [dict(item) for item in body.input]
        results = sum(item.get("type") == "function_call_output" for item in items)
        if self.config.fails_after is not None and results >= self.config.fails_after:
            raise HTTPException(400, "the model is out of order")
        act = self.config.acts[min(results, len(self.config.acts) - 1)] if body.tools else "A title"
        return reply(act if isinstance(act, str) else tool_call(*act), usage=USAGE)

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        params = _CONVERTER.chat_completion_to_responses_create_params(body)
        return build_chat_completion(await self.responses(params))


class BenchRequest(BaseVerifyRequest):
    """What a program has left on the bench."""

    workspace: dict[str, Any]


class Bench(SimpleResourcesServer):
    """One file to repair: reward 1 if it is."""

    async def verify(self, body: BenchRequest) -> BaseVerifyResponse:  # type: ignore[override]
        is_repaired = body.workspace["files"].get("calc.py") == REPAIRED
        return BaseVerifyResponse(**body.model_dump(exclude={"workspace"}), reward=float(is_repaired))


def make_row(prompt: str = "Repair add() in calc.py.", **fields: Any) -> dict[str, Any]:
    """Return a task: a workspace with a file that is to be repaired."""
    params = {"input": [{"role": "user", "content": prompt}]}
    return {"responses_create_params": params, "workspace": {"files": {"calc.py": BROKEN}}, **fields}


def read_preset(name: str) -> dict[str, Any]:
    """Return the block of a preset, without the servers that it names."""
    config = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
    block = config[f"{name}_agent"]["responses_api_agents"]["program_agent"]
    return {key: value for key, value in block.items() if key not in ("resources_server", "model_server")}


async def play(
    row: dict[str, Any] | None = None,
    *,
    world: Any = Bench,
    model: Any = None,
    model_config: dict[str, Any] | None = None,
    cache_dir: str | None = None,
    **program: Any,
) -> dict[str, Any]:
    """Play one rollout of a program, whose config is given, and return its row."""
    block = agent_config("world", **{"entrypoint": "app.py", **program})
    servers = {
        "world": world,
        "policy_model": (model or ActingModel, model_config or {}),
        "agent": (ProgramAgent, block),
    }
    config = {} if cache_dir is None else {"cache_dir": cache_dir}
    async with running(global_config=config, **servers) as client:
        answer = await client.post("agent", "/run", json=row or make_row())
        told: dict[str, Any] = await get_response_json(answer)
        assert answer.ok, told
        return told


PYTHON = os.path.realpath(sys.executable)
PRELUDE = """
import json, os, socket, subprocess, sys, time, urllib.error, urllib.request

def ask(path, **body):
    head = {"content-type": "application/json"}
    request = urllib.request.Request(os.environ["ROOT"] + path, json.dumps({"model": "m", **body}).encode(), head)
    with urllib.request.urlopen(request, timeout=300) as reply:
        return reply.read().decode()

def chat(*texts, **more):
    roles = ["user", "assistant"]
    messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    return ask("/v1/chat/completions", messages=messages, **more)
"""


def python_program(source: str, **config: Any) -> dict[str, Any]:
    """Return the config of a program in Python, which has `ask` and `chat` for its model."""
    return {"command": [PYTHON, "-c", PRELUDE + source], "env": {"ROOT": "$root_url"}, **config}
