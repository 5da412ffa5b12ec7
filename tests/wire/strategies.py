# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for valid wire payloads, as plain JSON values.

`input_items`, `output_items`, `create_params`, `responses`, `chat_messages`, `chat_params`, `chat_completions` are
whole payloads; the rest are their parts. All are valid for the openai SDK too, except those named `nemo_gym_…`.
"""

from typing import Any

from hypothesis import strategies as st

Payload = dict[str, Any]

ids = st.text("abcdef0123456789_", min_size=1, max_size=12)
texts = st.text(max_size=40)
names = st.text("abcdefghij_", min_size=1, max_size=12)
counts = st.integers(0, 10_000)
statuses = st.sampled_from(["in_progress", "completed", "incomplete"])
numbers = st.floats(-100, 100, allow_nan=False).map(lambda number: round(number, 3))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(names, json_values, max_size=3)
metadata = st.dictionaries(names, texts, max_size=3)


def record(required: Payload, optional: Payload | None = None) -> st.SearchStrategy[Payload]:
    """An object with all of `required` and any of `optional`; values that are no strategy stand for themselves."""

    def strategies(fields: Payload) -> dict[str, st.SearchStrategy[Any]]:
        return {
            name: value if isinstance(value, st.SearchStrategy) else st.just(value) for name, value in fields.items()
        }

    return st.fixed_dictionaries(strategies(required), optional=strategies(optional or {}))


def nullable(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def some(strategy: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, max_size=most)


# --- content parts ---------------------------------------------------------------------------------------------------

input_texts = record({"type": "input_text", "text": texts})
input_images = record({"type": "input_image", "detail": st.sampled_from(["low", "high", "auto"])}, {"image_url": texts})
input_files = record({"type": "input_file"}, {"file_data": texts, "file_id": ids, "filename": names})
input_parts = input_texts | input_images | input_files
annotations = record(
    {"type": "url_citation", "url": texts, "title": texts, "start_index": counts, "end_index": counts}
) | record({"type": "file_path", "file_id": ids, "index": counts})
token_logprobs = record(
    {"token": texts, "bytes": some(st.integers(0, 255)), "logprob": numbers},
).flatmap(lambda one: record({**one, "top_logprobs": st.just([one])}))
output_texts = record(
    {"type": "output_text", "text": texts, "annotations": some(annotations, 2)}, {"logprobs": some(token_logprobs, 2)}
)
refusals = record({"type": "refusal", "refusal": texts})

# --- items -----------------------------------------------------------------------------------------------------------

easy_messages = record(
    {"role": st.sampled_from(["user", "assistant", "system", "developer"]), "content": texts | some(input_parts)},
    {"type": "message"},
)
messages = record(
    {
        "role": st.sampled_from(["user", "system", "developer"]),
        "content": some(input_parts),
        "status": statuses,
        "type": "message",
    }
)
output_messages = record(
    {"id": ids, "type": "message", "role": "assistant", "status": statuses, "content": some(output_texts | refusals)}
)
function_calls = record(
    {"type": "function_call", "call_id": ids, "name": names, "arguments": json_objects.map(str)},
    {"id": ids, "status": statuses},
)
function_call_outputs = record(
    {"type": "function_call_output", "call_id": ids, "output": texts | some(input_parts, 2)},
    {"id": ids, "status": statuses},
)
reasoning_items = record(
    {"type": "reasoning", "id": ids, "summary": some(record({"type": "summary_text", "text": texts}))},
    {
        "encrypted_content": nullable(texts),
        "content": some(record({"type": "reasoning_text", "text": texts}), 2),
    },
)
custom_calls = record({"type": "custom_tool_call", "call_id": ids, "input": texts, "name": names}, {"id": ids})
custom_call_outputs = record({"type": "custom_tool_call_output", "call_id": ids, "output": texts}, {"id": ids})
mcp_calls = record(
    {"type": "mcp_call", "id": ids, "arguments": texts, "name": names, "server_label": names},
    {
        "output": nullable(texts),
        "error": nullable(texts),
        "status": st.sampled_from(["calling", "failed", "completed"]),
    },
)
mcp_lists = record(
    {
        "type": "mcp_list_tools",
        "id": ids,
        "server_label": names,
        "tools": some(record({"name": names, "input_schema": json_objects}, {"description": texts}), 2),
    },
    {"error": nullable(texts)},
)
mcp_approval_requests = record(
    {"type": "mcp_approval_request", "id": ids, "arguments": texts, "name": names, "server_label": names}
)
mcp_approvals = record(
    {"type": "mcp_approval_response", "approval_request_id": ids, "approve": st.booleans()}, {"reason": texts}
)
file_searches = record(
    {"type": "file_search_call", "id": ids, "queries": some(texts), "status": st.sampled_from(["searching", "failed"])},
    {"results": nullable(some(record({}, {"file_id": ids, "score": numbers, "text": texts}), 2))},
)
web_searches = record(
    {
        "type": "web_search_call",
        "id": ids,
        "status": st.sampled_from(["searching", "completed"]),
        "action": record(
            {"type": "search", "query": texts}, {"sources": some(record({"type": "url", "url": texts}), 2)}
        )
        | record({"type": "open_page", "url": texts}),
    }
)
computer_actions = record(
    {"type": "click", "button": st.sampled_from(["left", "right"]), "x": counts, "y": counts}
) | record({"type": "drag", "path": some(record({"x": counts, "y": counts}))})
computer_calls = record(
    {
        "type": "computer_call",
        "id": ids,
        "call_id": ids,
        "status": statuses,
        "action": computer_actions,
        "pending_safety_checks": some(record({"id": ids}, {"code": nullable(texts)}), 2),
    }
)
computer_outputs = record(
    {
        "type": "computer_call_output",
        "call_id": ids,
        "output": record({"type": "computer_screenshot"}, {"file_id": ids}),
    },
    {"id": ids, "status": statuses},
)
image_generations = record(
    {
        "type": "image_generation_call",
        "id": ids,
        "status": st.sampled_from(["generating", "completed"]),
        "result": nullable(texts),
    }
)
code_calls = record(
    {
        "type": "code_interpreter_call",
        "id": ids,
        "container_id": ids,
        "status": st.sampled_from(["interpreting", "completed"]),
        "code": nullable(texts),
        "outputs": nullable(some(record({"type": "logs", "logs": texts}) | record({"type": "image", "url": texts}), 2)),
    }
)
shell_calls = record(
    {
        "type": "local_shell_call",
        "id": ids,
        "call_id": ids,
        "status": statuses,
        "action": record({"type": "exec", "command": some(texts), "env": metadata}, {"timeout_ms": counts}),
    }
)
shell_outputs = record({"type": "local_shell_call_output", "id": ids, "output": texts}, {"status": statuses})

output_items = st.one_of(
    output_messages,
    function_calls,
    reasoning_items,
    custom_calls,
    mcp_calls,
    mcp_lists,
    mcp_approval_requests,
    file_searches,
    web_searches,
    computer_calls,
    image_generations,
    code_calls,
    shell_calls,
)
# What the converters understand; the rest raises NotImplementedError there.
core_input_items = st.one_of(
    easy_messages, messages, output_messages, function_calls, function_call_outputs, reasoning_items
)
input_items = st.one_of(
    core_input_items, output_items, custom_call_outputs, computer_outputs, shell_outputs, mcp_approvals
)
token_fields = record(
    {
        "prompt_token_ids": some(counts),
        "generation_token_ids": some(counts),
        "generation_log_probs": some(numbers),
    },
    {"routed_experts": nullable(texts | some(some(some(counts, 2), 2), 2))},
)
nemo_gym_training_items = st.tuples(
    easy_messages | messages | output_messages | function_calls | reasoning_items, token_fields
).map(lambda pair: {**pair[0], **pair[1]})

# --- requests --------------------------------------------------------------------------------------------------------

function_tools = record(
    {"type": "function", "name": names, "parameters": nullable(json_objects), "strict": nullable(st.booleans())},
    {"description": nullable(texts)},
)
hosted_tools = st.one_of(
    record({"type": "web_search"}, {"search_context_size": "low"}),
    record({"type": "file_search", "vector_store_ids": some(ids)}, {"max_num_results": counts}),
    record({"type": "mcp", "server_label": names, "server_url": texts, "headers": nullable(metadata)}),
    record({"type": "code_interpreter", "container": record({"type": "auto", "file_ids": some(ids)}) | ids}),
    record({"type": "custom", "name": names}, {"description": texts, "format": record({"type": "text"})}),
    record({"type": "local_shell"}),
)
tool_choices = st.one_of(
    st.sampled_from(["none", "auto", "required"]),
    record({"type": "function", "name": names}),
    record({"type": "mcp", "server_label": names}, {"name": nullable(names)}),
    record({"type": "allowed_tools", "mode": "auto", "tools": some(json_objects, 2)}),
    record({"type": "file_search"}),
)
reasoning = record({}, {"effort": nullable(st.sampled_from(["minimal", "low", "high"])), "summary": "auto"})
text_formats = st.one_of(
    record({"type": "text"}),
    record({"type": "json_object"}),
    record({"type": "json_schema", "name": names, "schema": json_objects}, {"strict": nullable(st.booleans())}),
)
text_configs = record({}, {"format": text_formats, "verbosity": st.sampled_from(["low", "high"])})
sampling = {"temperature": nullable(numbers), "top_p": nullable(numbers), "top_logprobs": nullable(counts)}


create_params = record(
    {"input": texts | some(input_items, 5)},
    {
        **sampling,
        "background": nullable(st.booleans()),
        "include": some(st.just("reasoning.encrypted_content"), 1),
        "instructions": nullable(texts),
        "max_output_tokens": nullable(counts),
        "max_tool_calls": nullable(counts),
        "metadata": nullable(metadata),
        "model": names,
        "parallel_tool_calls": st.booleans(),
        "previous_response_id": nullable(ids),
        "prompt": nullable(record({"id": ids}, {"version": nullable(ids)})),
        "reasoning": nullable(reasoning),
        "service_tier": nullable(st.sampled_from(["auto", "default", "flex", "scale", "priority"])),
        "store": nullable(st.booleans()),
        "stream": nullable(st.just(False)),
        "text": text_configs,
        "tool_choice": tool_choices,
        "tools": some(function_tools | hosted_tools),
        "truncation": nullable(st.sampled_from(["auto", "disabled"])),
        "user": ids,
    },
)

# --- replies ---------------------------------------------------------------------------------------------------------

usages = record(
    {
        "input_tokens": counts,
        "input_tokens_details": record({"cached_tokens": counts}),
        "output_tokens": counts,
        "output_tokens_details": record({"reasoning_tokens": counts}),
        "total_tokens": counts,
    }
)


responses = record(
    {
        "id": ids,
        "created_at": st.integers(0, 2_000_000_000).map(float),
        "model": names,
        "object": "response",
        "output": some(output_items, 4),
        "parallel_tool_calls": st.booleans(),
        "tool_choice": tool_choices,
        "tools": some(function_tools | hosted_tools, 2),
    },
    {
        **sampling,
        "error": nullable(record({"code": "server_error", "message": texts})),
        "incomplete_details": nullable(record({"reason": st.sampled_from(["max_output_tokens", "content_filter"])})),
        "instructions": nullable(texts | some(easy_messages, 2)),
        "metadata": nullable(metadata),
        "max_output_tokens": nullable(counts),
        "previous_response_id": nullable(ids),
        "reasoning": nullable(reasoning),
        "service_tier": nullable(st.sampled_from(["auto", "default"])),
        "status": st.sampled_from(["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"]),
        "text": text_configs,
        "truncation": nullable(st.sampled_from(["auto", "disabled"])),
        "usage": nullable(usages),
        "user": nullable(ids),
        "a_field_of_tomorrow": json_values,
    },
)

# --- chat completions ------------------------------------------------------------------------------------------------

chat_tool_calls = record(
    {
        "id": ids,
        "type": "function",
        "function": record({"name": names, "arguments": json_objects.map(str)}),
    }
) | record({"id": ids, "type": "custom", "custom": record({"name": names, "input": texts})})
text_parts = record({"type": "text", "text": texts})
user_parts = st.one_of(
    text_parts,
    record({"type": "image_url", "image_url": record({"url": texts}, {"detail": "low"})}),
    record({"type": "input_audio", "input_audio": record({"data": texts, "format": "wav"})}),
    record({"type": "file", "file": record({}, {"file_id": ids})}),
)
user_chat_messages = record({"role": "user", "content": texts | some(user_parts)}, {"name": names})
system_chat_messages = record(
    {"role": st.sampled_from(["system", "developer"]), "content": texts | some(text_parts)}, {"name": names}
)
assistant_chat_messages = record(
    {"role": "assistant"},
    {
        "content": nullable(texts | some(text_parts | refusals)),
        "refusal": nullable(texts),
        "tool_calls": some(chat_tool_calls),
    },
)
tool_chat_messages = record({"role": "tool", "content": texts | some(text_parts), "tool_call_id": ids})
chat_messages = user_chat_messages | system_chat_messages | assistant_chat_messages | tool_chat_messages
chat_tools = record(
    {
        "type": "function",
        "function": record(
            {"name": names}, {"description": texts, "parameters": json_objects, "strict": st.booleans()}
        ),
    }
) | record({"type": "custom", "custom": record({"name": names}, {"description": texts})})
chat_params = record(
    {"messages": some(chat_messages, 5), "model": names},
    {
        "temperature": nullable(numbers),
        "top_p": nullable(numbers),
        "max_tokens": nullable(counts),
        "max_completion_tokens": nullable(counts),
        "n": nullable(counts),
        "seed": nullable(counts),
        "logprobs": nullable(st.booleans()),
        "top_logprobs": nullable(counts),
        "logit_bias": nullable(st.dictionaries(ids, counts, max_size=2)),
        "stop": nullable(texts | some(texts)),
        "metadata": nullable(metadata),
        "parallel_tool_calls": st.booleans(),
        "reasoning_effort": nullable(st.sampled_from(["minimal", "low", "high"])),
        "response_format": text_parts.map(lambda _: {"type": "json_object"}),
        "tool_choice": st.sampled_from(["none", "auto", "required"])
        | record({"type": "function", "function": record({"name": names})}),
        "tools": some(chat_tools),
        "stream": nullable(st.just(False)),
        "user": ids,
    },
)
chat_logprobs = record({"content": nullable(some(token_logprobs, 2)), "refusal": st.none()})
chat_reply_messages = record(
    {"role": "assistant", "content": nullable(texts)},
    {"refusal": nullable(texts), "tool_calls": nullable(some(chat_tool_calls)), "reasoning_content": nullable(texts)},
)
chat_usages = record(
    {"prompt_tokens": counts, "completion_tokens": counts, "total_tokens": counts},
    {
        "prompt_tokens_details": nullable(record({}, {"cached_tokens": nullable(counts)})),
        "completion_tokens_details": nullable(record({}, {"reasoning_tokens": nullable(counts)})),
    },
)


chat_choices = record(
    {
        "index": counts,
        "finish_reason": st.sampled_from(["stop", "length", "tool_calls", "content_filter"]),
        "message": chat_reply_messages,
    },
    {"logprobs": nullable(chat_logprobs), "token_ids": st.none()},
)
chat_completions = record(
    {
        "id": ids,
        "object": "chat.completion",
        "created": counts,
        "model": names,
        "choices": some(chat_choices, 2),
    },
    {"usage": nullable(chat_usages), "system_fingerprint": nullable(ids), "a_field_of_tomorrow": json_values},
)
