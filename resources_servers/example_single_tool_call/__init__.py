# SPDX-License-Identifier: Apache-2.0
"""The smallest environment with a tool: the weather of a city."""
