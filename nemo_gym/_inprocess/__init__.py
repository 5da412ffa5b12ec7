# SPDX-License-Identifier: Apache-2.0
"""Calls between servers of one process: the cost of a function call, the behavior of an HTTP request.

`ServerClient.request` looks up the target by host and port (`registry`). If it is on the running event loop, `call`
calls its ASGI app. If every middleware around the app is ours, `fast_path` calls the handler directly.

Skipped: the socket, HTTP parsing, and the JSON of create params and responses, which are passed as objects (`objects`)
and validated once. A reply becomes bytes, and a session becomes a cookie, only on demand (`response`).

Unchanged: third-party middleware, cookies, status codes, validation and its messages, exceptions (the whole stack
answers for a handler that raises), the server under whose name output is logged, deadlines. Each side owns its objects:
no server can change what another holds. Whatever does not fit an object is sent as bytes, which then decide.

Tested by: `test_status_headers_cookies_and_body_are_the_same_as_over_http` (tests/inprocess/test_call.py),
`test_a_fast_path_gives_what_the_whole_stack_gives`, `test_middleware_of_others_sees_every_call` and
`test_a_server_cannot_change_what_the_caller_sent` (tests/inprocess/test_fast_path.py), tests/inprocess/test_route.py
against FastAPI itself; measured by `gym bench hops`.
"""
