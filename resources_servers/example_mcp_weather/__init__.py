# SPDX-License-Identifier: Apache-2.0
"""The weather of a city, by a tool that is offered over MCP too."""
