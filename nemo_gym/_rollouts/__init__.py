# SPDX-License-Identifier: Apache-2.0
"""The rollout engine: plan or resume a run, run its rollouts, record every one. Start reading at `collect`."""
