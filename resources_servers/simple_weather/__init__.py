# SPDX-License-Identifier: Apache-2.0
"""The older name of `example_single_tool_call`, for configs and imports that still use it."""
