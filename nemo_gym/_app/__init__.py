# SPDX-License-Identifier: Apache-2.0
"""Start the servers of a config, and call them for rollouts and metrics; built on the public contract."""
