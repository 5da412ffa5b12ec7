# SPDX-License-Identifier: Apache-2.0
"""A model server as others write them: its backend searches and calls MCP tools by itself and says so in its items."""

from fastapi import Request

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseFunctionWebSearch,
    NeMoGymResponseMcpCall,
    NeMoGymResponseMcpListTools,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
)
from nemo_gym.responses_converter import split_responses_input_output_items


class SearchModelConfig(BaseResponsesAPIModelConfig):
    engine: str = "almanac"


class SearchModel(SimpleResponsesAPIModel):
    config: SearchModelConfig

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        given, made = split_responses_input_output_items([] if isinstance(body.input, str) else body.input)
        searches = sum(item.type == "web_search_call" for item in made)
        output = [
            NeMoGymResponseMcpListTools(
                type="mcp_list_tools", server_label=self.config.engine, tools=[{"name": "ask"}]
            ),
            NeMoGymResponseMcpCall(type="mcp_call", name="ask", arguments="{}", status="answered"),
            NeMoGymResponseFunctionWebSearch(
                id=f"ws_{searches}", type="web_search_call", status="completed", action={"type": "search", "query": "x"}
            ),
            NeMoGymResponseOutputMessage(
                id="msg_1",
                content=[NeMoGymResponseOutputText(text=f"{len(given)} given, {searches} searched", annotations=[])],
            ),
        ]
        output += [
            NeMoGymResponseFunctionToolCall(arguments="{}", call_id="call_1", name=tool["name"]) for tool in body.tools
        ]
        return NeMoGymResponse(
            id="resp_1",
            created_at=1.0,
            model=body.model or "search",
            object="response",
            output=output,
            tool_choice=body.tool_choice,
            tools=body.tools,
            parallel_tool_calls=body.parallel_tool_calls,
        )

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        return NeMoGymChatCompletion.model_validate({"id": "chat_1", "error": "the engine has no chat"})
