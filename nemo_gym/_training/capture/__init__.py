# SPDX-License-Identifier: Apache-2.0
"""Record the model calls of a running rollout: records, files, metrics and the ASGI middleware.

Explicit arguments in, values out: the public modules decide whether to capture, and into which directory.

A call is noted in two places: neither knows what the other does. `capture_middleware` sees the bytes at the edge
of a model server: statuses, times, the text of a stream, callers that leave. The handler knows the model's answer with
its tokens, before it becomes a stream or another dialect: the session gateway (`SessionCall.note_answer`) and
`nemo_gym.token_id_capture.capture_tokens` take it there. Everything else, agents' observations included, reads what
these two noted. A single recorder at the edge would need the answer passed back to it, would have to check a session's
key before it records, and could no longer be skipped for calls that belong to no rollout.
"""
