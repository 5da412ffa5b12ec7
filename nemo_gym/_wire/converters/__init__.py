# SPDX-License-Identifier: Apache-2.0
"""How one dialect becomes another: Responses → Chat Completions (`to_chat`), Chat Completions → Responses
(`from_chat`), Anthropic Messages ↔ Responses (`anthropic`, with the schema of its requests).

Everything passes through Responses. Each module says what is lost on the way.
"""
