# SPDX-License-Identifier: Apache-2.0
"""From a config to running servers: where each runs, and starting, watching and stopping them."""
