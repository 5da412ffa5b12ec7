# SPDX-License-Identifier: Apache-2.0
"""The contract of `nemo_gym.openai_utils`, `nemo_gym.responses_converter` and the two modules about streams."""

from tests.contract.shapes import (
    OPTIONAL,
    Name,
    aliases,
    class_,
    constant,
    coroutine,
    each,
    function,
    model,
    same,
    typed_dict,
)

_TOKENS = "prompt_token_ids generation_token_ids generation_log_probs"


def _training(name: str, of: str, fields: str) -> Name:
    return model(name, f"{fields} {_TOKENS}", routed_experts=None, bases=f"{of} TokenIDLogProbMixin")


_ITEMS = (
    model("NeMoGymEasyInputMessage", "content role", type="message"),
    model("NeMoGymMessage", "content role", status="completed", type="message"),
    model("NeMoGymResponseOutputMessage", "id content", role="assistant", status="completed", type="message"),
    model("NeMoGymResponseOutputText", "text", annotations=OPTIONAL, type="output_text", logprobs=None),
    model("NeMoGymResponseOutputRefusal", "refusal", type="refusal"),
    model("NeMoGymResponseFunctionToolCall", "arguments call_id name", type="function_call", id=None, status=None),
    model("NeMoGymFunctionCallOutput", "call_id output", type="function_call_output", id=None, status=None),
    model("NeMoGymResponseReasoningItem", "id summary", type="reasoning", encrypted_content=None, content=None),
    model("NeMoGymSummary", "text", type="summary_text"),
    model("NeMoGymInputVideoPart", type="input_video", video_url=None, video=None),
    model("NeMoGymResponseInputText", "text", type="input_text"),
    model("NeMoGymResponseMcpCall", "arguments name type", id=None, server_label=None, status=None),
    model("NeMoGymResponseMcpListTools", "type", id=None, server_label=None, tools=[]),
    model("NeMoGymResponseMcpApprovalRequest", id=None, server_label=None),
    model("NeMoGymResponseFileSearchToolCall"),
    model("NeMoGymResponseFunctionWebSearch"),
    model("NeMoGymResponseComputerToolCall"),
    model("NeMoGymImageGenerationCall"),
    model("NeMoGymResponseCodeInterpreterToolCall"),
    model("NeMoGymLocalShellCall"),
    model("NeMoGymResponseCustomToolCall"),
    model("NeMoGymComputerCallOutput"),
    model("NeMoGymResponseCustomToolCallOutput"),
    model("NeMoGymLocalShellCallOutput"),
    model("NeMoGymMcpApprovalResponse"),
    *aliases("NeMoGymContent NeMoGymResponseInputItem NeMoGymResponseInput NeMoGymResponseOutputItem"),
)

_TRAINING = (
    model("TokenIDLogProbMixin", _TOKENS, routed_experts=None),
    typed_dict("TokenIDLogProbTypedDictMixin", f"{_TOKENS} routed_experts"),
    *aliases("RoutedExperts"),
    constant("REQUIRED_TOKEN_METADATA_FIELDS", frozenset(_TOKENS.split())),
    constant("TOKEN_METADATA_FIELDS", frozenset([*_TOKENS.split(), "routed_experts"])),
    _training("NeMoGymEasyInputMessageForTraining", "NeMoGymEasyInputMessage", "content role"),
    _training("NeMoGymMessageForTraining", "NeMoGymMessage", "content role"),
    _training("NeMoGymResponseOutputMessageForTraining", "NeMoGymResponseOutputMessage", "id content"),
    _training(
        "NeMoGymResponseFunctionToolCallForTraining", "NeMoGymResponseFunctionToolCall", "arguments call_id name"
    ),
    _training("NeMoGymResponseReasoningItemForTraining", "NeMoGymResponseReasoningItem", "id summary"),
    constant("RESPONSES_TO_TRAIN"),
    function("training_variant_of", "cls"),
)

_RESPONSES = (
    model(
        "NeMoGymResponseCreateParamsNonStreaming",
        "input",
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        **each(
            "background include instructions max_output_tokens max_tool_calls metadata model previous_response_id "
            "prompt reasoning service_tier store temperature text top_logprobs top_p truncation user stream"
        ),
    ),
    model(
        "NeMoGymResponse",
        "id created_at model object output parallel_tool_calls tool_choice tools",
        Name("output_text", "property"),
        usage=None,
        **each(
            "error incomplete_details instructions metadata temperature top_p background max_output_tokens "
            "max_tool_calls previous_response_id prompt reasoning service_tier status text top_logprobs truncation "
            "user"
        ),
    ),
    model(
        "NeMoGymResponseUsage",
        "input_tokens output_tokens total_tokens",
        function("sum_from_list", "usages"),
        input_tokens_details=OPTIONAL,
        output_tokens_details=OPTIONAL,
    ),
    model("NeMoGymResponseInputTokensDetails", cached_tokens=OPTIONAL),
    model("NeMoGymResponseOutputTokensDetails", reasoning_tokens=OPTIONAL),
    function("accumulate_response_usage", "total, additional"),
    typed_dict("NeMoGymFunctionToolParam", "name parameters strict type description"),
)

_CHAT = (
    model("NeMoGymChatCompletion", "id choices created model object", usage=None),
    model("NeMoGymChoice", "finish_reason index message", logprobs=OPTIONAL),
    model("NeMoGymChatCompletionMessage", role=OPTIONAL, content=OPTIONAL, tool_calls=None, refusal=None),
    _training("NeMoGymChatCompletionMessageForTraining", "NeMoGymChatCompletionMessage", ""),
    model("NeMoGymFunction", "arguments name"),
    model("NeMoGymChatCompletionMessageToolCall", "id function", type=OPTIONAL),
    model("NeMoGymChatCompletionMessageCustomToolCall", "id custom", type=OPTIONAL),
    typed_dict("NeMoGymChatCompletionUserMessageParam", "content role name"),
    typed_dict("NeMoGymChatCompletionSystemMessageParam", "content role name"),
    typed_dict("NeMoGymChatCompletionDeveloperMessageParam", "content role name"),
    typed_dict("NeMoGymChatCompletionAssistantMessageParam", "content role name tool_calls refusal"),
    typed_dict("NeMoGymChatCompletionToolMessageParam", "content role tool_call_id"),
    typed_dict("NeMoGymChatCompletionAssistantMessageForTrainingParam", f"content role tool_calls {_TOKENS}"),
    typed_dict("NeMoGymChatCompletionToolParam", "function type"),
    typed_dict("NeMoGymChatCompletionCustomToolParam", "custom type"),
    typed_dict("NeMoGymChatCompletionMessageToolCallParam", "id function type"),
    typed_dict("NeMoGymChatCompletionMessageToolCallFunctionParam", "arguments name"),
    typed_dict("NeMoGymChatCompletionMessageCustomToolCallParam", "id custom type"),
    typed_dict("NeMoGymChatCompletionContentPartTextParam", "text type"),
    typed_dict("NeMoGymChatCompletionContentPartImageParam", "image_url type"),
    typed_dict("NeMoGymChatCompletionContentPartInputAudioParam", "input_audio type"),
    typed_dict("NeMoGymChatCompletionContentPartFileParam", "file type"),
    typed_dict("NeMoGymChatCompletionContentPartVideoUrlParam", "video_url type"),
    typed_dict("NeMoGymFunctionDefinition", "name description parameters strict"),
    *aliases("NeMoGymChatCompletionMessageParam"),
    model(
        "NeMoGymChatCompletionCreateParamsNonStreaming",
        "messages",
        parallel_tool_calls=True,
        **each("model max_completion_tokens max_tokens metadata n seed stop stream temperature top_p"),
        **each("tools tool_choice logprobs top_logprobs response_format user", OPTIONAL),
    ),
)

_CREATE = each(
    "create_models create_chat_completion create_completion create_response create_tokenize create_detokenize"
)

_CLIENT = (
    model(
        "NeMoGymAsyncOpenAI",
        "base_url api_key",
        *(coroutine(name, "**kwargs") for name in _CREATE),
        internal=False,
        default_headers={},
    ),
    constant("RATE_LIMIT_ERROR_CODES", [429, 502, 503, 504, 520]),
    constant("RETRY_ERROR_CODES", [429, 502, 503, 504, 520, 500]),
    same("request", "nemo_gym.server_utils:request"),
    same("raise_for_status", "nemo_gym.server_utils:raise_for_status"),
)

OPENAI_UTILS = (*_ITEMS, *_TRAINING, *_RESPONSES, *_CHAT, *_CLIENT)

_CLIENT_ITEMS = (
    "function_call_output computer_call_output local_shell_call_output custom_tool_call_output mcp_approval_response"
)
_MODEL_ITEMS = (
    "function_call mcp_call file_search_call web_search_call computer_call image_generation_call "
    "code_interpreter_call local_shell_call custom_tool_call reasoning mcp_list_tools mcp_approval_request"
)

RESPONSES_STREAMING = (
    function("flatten_namespace_tools", "tools"),
    function("sanitize_streaming_responses_body", "body"),
    function("validate_streaming_responses_params", "body"),
    function("synthesize_responses_sse", "response, map=None"),
    function("synthesize_responses_failure_sse", "message, *, code='server_error'"),
)

CHAT_STREAMING = (
    function("sanitize_streaming_chat_body", "body"),
    function("synthesize_chat_completion_sse", "completion, include_usage=False"),
)

RESPONSES_CONVERTER = (
    model(
        "ResponsesConverter",
        "return_token_id_information",
        function("responses_to_chat_completion_create_params", "responses_create_params"),
        function("chat_completion_to_responses_create_params", "chat_completion_create_params"),
        function("chat_completion_to_response", "responses_create_params, chat_completion"),
        function("postprocess_chat_response", "choice"),
        function("postprocess_assistant_message_dict", "message_dict"),
        function("chat_completions_messages_to_responses_items", "messages"),
        function("_wrap_reasoning_in_think_tags", "texts"),
        function("_extract_reasoning_from_content", "content"),
        function("_parse_think_tags", "content"),
        uses_reasoning_parser=True,
    ),
    same("VLLMConverter", "nemo_gym.responses_converter:ResponsesConverter"),
    class_("ResponsesConverterState"),
    same("VLLMConverterResponsesToChatCompletionsState", "nemo_gym.responses_converter:ResponsesConverterState"),
    function("split_responses_input_output_items", "items"),
    function("_usage_detail", "usage, group, name, *aliases"),
    constant("_RESPONSE_NON_BOUNDARY_TYPES", frozenset(_CLIENT_ITEMS.split())),
    constant("_RESPONSE_OUTPUT_BOUNDARY_TYPES", frozenset(_MODEL_ITEMS.split())),
    same("uuid4", "uuid:uuid4"),
)
