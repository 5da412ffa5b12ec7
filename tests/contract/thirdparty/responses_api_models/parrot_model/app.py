# SPDX-License-Identifier: Apache-2.0
from time import time
from uuid import uuid4

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymChatCompletionMessage,
    NeMoGymChatCompletionMessageToolCall,
    NeMoGymChoice,
    NeMoGymFunction,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
)


class ParrotModelConfig(BaseResponsesAPIModelConfig):
    prefix: str = "You said: "


class ParrotModel(SimpleResponsesAPIModel):
    config: ParrotModelConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        said = body.input if isinstance(body.input, str) else body.input[-1].content
        output = [
            NeMoGymResponseOutputMessage(
                id=f"msg_{uuid4().hex}",
                content=[NeMoGymResponseOutputText(text=self.config.prefix + said, annotations=[])],
            )
        ]
        for tool in body.tools:
            output.append(NeMoGymResponseFunctionToolCall(arguments="{}", call_id="call_1", name=tool["name"]))
        return NeMoGymResponse(
            id=f"resp_{uuid4().hex}",
            created_at=int(time()),
            model=body.model or "parrot",
            object="response",
            output=output,
            tool_choice=body.tool_choice,
            tools=body.tools,
            parallel_tool_calls=body.parallel_tool_calls,
        )

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        said = body.messages[-1]["content"]
        calls = [
            NeMoGymChatCompletionMessageToolCall(
                id="call_1",
                type="function",
                function=NeMoGymFunction(name=tool["function"]["name"], arguments="{}"),
            )
            for tool in body.tools or []
        ]
        message = NeMoGymChatCompletionMessage(
            role="assistant", content=self.config.prefix + said, tool_calls=calls or None
        )
        return NeMoGymChatCompletion(
            id="chat_1",
            created=int(time()),
            model=body.model or "parrot",
            object="chat.completion",
            choices=[NeMoGymChoice(index=0, finish_reason="tool_calls" if calls else "stop", message=message)],
        )


if __name__ == "__main__":
    ParrotModel.run_webserver()
