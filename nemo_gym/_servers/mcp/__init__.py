# SPDX-License-Identifier: Apache-2.0
"""Tools of a resources server over MCP: the protocol, the tools found from routes, and the session behind a call.

Only what tools need is spoken: no resources, prompts, sampling or server-sent streams.
"""
