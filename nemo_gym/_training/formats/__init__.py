# SPDX-License-Identifier: Apache-2.0
"""The formats that rollouts are exported to: views of the canonical record, each in the terms of its library.

sample         what a format gets, and what it is
branches       a record for every branch: TRL, verl, OpenRLHF, NeMo RL; and for every rollout: our own
groups         a record for every group: SkyRL, Atropos, ART; and for every pair: DPO
conversations  a record for every conversation: SFT, ATIF, prime-rl
"""
