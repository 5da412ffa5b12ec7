# SPDX-License-Identifier: Apache-2.0
"""An environment with state: every rollout has a counter of its own."""
