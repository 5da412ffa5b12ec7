# SPDX-License-Identifier: Apache-2.0
import json
from typing import Any

from pydantic import ConfigDict

from nemo_gym import BaseResourcesServerConfig, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseReasoningItem,
)


class TraceVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")

    ground_truth: list[dict[str, Any]] | str


class TraceVerifyResponse(BaseVerifyResponse):
    ground_truth: list[dict[str, Any]] | str
    calls: list[dict[str, Any]]
    thoughts: list[str]
    prompt: str


class TraceReaderServer(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: TraceVerifyRequest) -> TraceVerifyResponse:
        wanted = json.loads(body.ground_truth) if isinstance(body.ground_truth, str) else body.ground_truth
        calls = read_calls(body.response.output)
        return TraceVerifyResponse(
            **body.model_dump(),
            calls=calls,
            thoughts=read_thoughts(body.response.output),
            prompt=read_prompt(body),
            reward=1.0 if calls == wanted else 0.0,
        )


def read_calls(output: list[Any]) -> list[dict[str, Any]]:
    calls = []
    for item in output:
        if isinstance(item, NeMoGymResponseFunctionToolCall):
            try:
                calls.append({"name": item.name, "arguments": json.loads(item.arguments)})
            except json.JSONDecodeError:
                calls.append({"name": item.name, "arguments": None})
    return calls


def read_thoughts(output: list[Any]) -> list[str]:
    thoughts = []
    for item in output:
        if isinstance(item, NeMoGymResponseReasoningItem):
            thoughts += [summary.text for summary in item.summary or []]
        elif isinstance(item, NeMoGymFunctionCallOutput):
            thoughts.append(f"saw {item.output}")
        elif isinstance(item, NeMoGymResponseOutputMessage):
            thoughts += ["refused" for part in item.content if part.type == "refusal"]
    return thoughts


def read_prompt(body: TraceVerifyRequest) -> str:
    messages = body.responses_create_params.input
    if isinstance(messages, str):
        return messages
    texts = []
    for message in messages:
        role = message["role"] if isinstance(message, dict) else getattr(message, "role", None)
        if role != "user":
            continue
        content = message.content if isinstance(message, NeMoGymEasyInputMessage) else message["content"]
        if isinstance(content, str):
            texts.append(content)
        else:
            for part in content:
                text = part.get("text") if isinstance(part, dict) else part.text
                texts.append(text)
    return "\n".join(texts)


if __name__ == "__main__":
    TraceReaderServer.run_webserver()
