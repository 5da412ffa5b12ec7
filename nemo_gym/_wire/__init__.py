# SPDX-License-Identifier: Apache-2.0
"""What goes over the wire between clients, model servers and model endpoints, in three dialects.

- Schemas: `params` and `response` (Responses), made of `items`, `item_unions` and `tokens`; `chat_params` and
  `chat_completion` (Chat Completions); the request in `anthropic`. All stand on `base`; `errors` says which reply is no
  answer. The names that each lists in `__all__` are the public ones, imported from `nemo_gym.openai_utils`.
- Converters: `to_chat` and `from_chat` (Responses ↔ Chat Completions), `anthropic` (Anthropic Messages ↔ Responses).
- Streaming: `streaming_requests` (what a streaming client sends) and `streaming_replies` (what it gets).
"""
