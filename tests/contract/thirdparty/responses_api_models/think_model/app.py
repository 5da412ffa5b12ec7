# SPDX-License-Identifier: Apache-2.0
import json

from fastapi import Body, Request
from fastapi.responses import JSONResponse

from nemo_gym import (
    BaseResponsesAPIModelConfig,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    SimpleResponsesAPIModel,
)
from nemo_gym.openai_utils import NeMoGymResponseReasoningItem, NeMoGymSummary
from nemo_gym.responses_converter import VLLMConverter, split_responses_input_output_items


class ThinkConverter(VLLMConverter):
    """Takes reasoning from `[[…]]` instead of tags."""

    def _extract_reasoning_from_content(self, content: str) -> tuple[list[str], str]:
        if content.startswith("[[") and "]]" in content:
            thought, rest = content[2:].split("]]", 1)
            return [thought], rest
        return [], content


class ThinkModel(SimpleResponsesAPIModel):
    config: BaseResponsesAPIModelConfig
    seen: list[dict] = []

    def setup_webserver(self):
        app = super().setup_webserver()
        app.get("/get_inner_config")(self.get_inner_config)
        return app

    async def get_inner_config(self) -> dict:
        return {"base_url": "http://inner", "model": self.config.name}

    async def responses(
        self, body: NeMoGymResponseCreateParamsNonStreaming = Body(), request: Request = None
    ) -> NeMoGymResponse:
        given, made = split_responses_input_output_items(body.input if isinstance(body.input, list) else [])
        self.seen.append({"given": len(given), "made": len(made), "path": request.url.path if request else None})
        converter = ThinkConverter(return_token_id_information=False)
        completion = await self.chat_completions(converter.responses_to_chat_completion_create_params(body))
        response = converter.chat_completion_to_response(body, completion)
        response.output.insert(0, NeMoGymResponseReasoningItem(id="rs_0", summary=[NeMoGymSummary(text="start")]))
        return response

    async def chat_completions(
        self, body: NeMoGymChatCompletionCreateParamsNonStreaming = Body()
    ) -> NeMoGymChatCompletion:
        last = body.messages[-1]["content"]
        if last == "raw":
            return JSONResponse({"raw": True}, status_code=418)
        if last == "dict":
            return {"choices": [], "note": json.dumps(last)}
        return NeMoGymChatCompletion.model_validate(
            {
                "id": "c",
                "object": "chat.completion",
                "created": 1,
                "model": "think",
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "stop",
                        "message": {"role": "assistant", "content": "[[deep]]yes", "reasoning_content": None},
                    }
                ],
                "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
            }
        )


if __name__ == "__main__":
    ThinkModel.run_webserver()
