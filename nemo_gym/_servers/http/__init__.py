# SPDX-License-Identifier: Apache-2.0
"""The HTTP of a server: its app, its sockets, and what stands between them and a handler."""
