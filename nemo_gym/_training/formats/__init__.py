# SPDX-License-Identifier: Apache-2.0
"""The formats that rollouts are exported to: views of the canonical record, each in the terms of its library.

The integrations that play live build their records with the same functions.

sample         what a format gets, and what it is
branches       a record for every branch: TRL, verl, OpenRLHF, NeMo RL; and for every rollout: our own
groups         a record for every group: SkyRL, Atropos; and for every pair: DPO
art_groups     a record for every group: ART
conversations  a record for every conversation: SFT, ATIF, prime-rl
"""
