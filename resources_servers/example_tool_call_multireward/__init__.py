# SPDX-License-Identifier: Apache-2.0
"""An example of rewards that are made up of parts, on tool calls."""
