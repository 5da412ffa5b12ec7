# SPDX-License-Identifier: Apache-2.0
"""Servers: the HTTP in front of them, the processes they run in, and everything that starts, reaches and stops them.

http             the app of a server and what stands before its handlers: admission, sessions, error bodies, sockets
direct_calls     calls between servers of one process, without a socket
processes        servers in processes, alone or several: started, watched, logged and stopped
installing       what a server's folder asks for, and the virtual environments built from it
launching        from a config to running servers
ray              everything on Ray: the cluster, replicas and where they are placed
mcp              the tools of a resources server over MCP
policy_versions  versions of the policy's weights: announced, marked on answers, and how old rollouts may get

`head_app` knows the config and the addresses of a run, `process_environment` is what a server process learns from its
environment, and `this_process` serves what the process was started for.
"""
