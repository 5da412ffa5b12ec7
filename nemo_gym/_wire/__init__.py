# SPDX-License-Identifier: Apache-2.0
"""What goes over the wire between clients, model servers and model endpoints, in three dialects: OpenAI's Responses
and Chat Completions, and Anthropic's Messages.

- `schema`: what a request and a reply look like.
- `converters`: how one dialect becomes another.
- `streaming`: a finished reply as the events that a streaming client expects.
"""
