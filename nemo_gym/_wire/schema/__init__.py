# SPDX-License-Identifier: Apache-2.0
"""What requests and replies look like in the Responses and Chat Completions dialects.

- `responses_request` and `chat_request`: what a client may ask.
- `replies`: what a model answers; `format_errors` says which replies contain no answer.
- `items` and `item_unions`: what conversations are made of; `tokens`: the ids, log-probs and counts of tokens.
- `wire_model`: what they all share.

The names that each module lists in `__all__` are public, and are imported from `nemo_gym.openai_utils`.
"""
