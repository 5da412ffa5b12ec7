# SPDX-License-Identifier: Apache-2.0
"""The rollout engine: plan or resume a run, play its rollouts, record and count every one. `run` is its first page."""
