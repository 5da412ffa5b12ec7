# SPDX-License-Identifier: Apache-2.0
"""The rollout engine: plan or resume a run, run its rollouts, record and count every one. Start reading at `run`."""
