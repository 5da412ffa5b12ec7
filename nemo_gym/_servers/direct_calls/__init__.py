# SPDX-License-Identifier: Apache-2.0
"""Calls between servers of one process: the cost of a function call, the behavior of an HTTP request.

`ServerClient.request` looks up the target by host and port (`running_apps`). If it is on the running event loop, `call`
calls its ASGI app. If every middleware around the app is ours, `route` calls the handler directly, in the same steps.

Skipped: the socket, HTTP parsing, and the JSON of create params and responses, which are passed as objects (`objects`)
and validated once. A reply becomes bytes, and a session becomes a cookie, only on demand (`response`).

Unchanged: third-party middleware, cookies, status codes, validation and its messages, exceptions (the whole stack
answers for a handler that raises), the server under whose name output is logged, deadlines. Each side owns its objects:
no server can change what another holds. Whatever does not fit an object is sent as bytes, which then decide.

Tested by tests/servers/direct_calls: replies are the same as over HTTP, middleware of others sees every call, a server
cannot change what its caller sent, and routes answer as FastAPI's do. Measured by `gym bench hops`.
"""
