# SPDX-License-Identifier: Apache-2.0
"""Everything on Ray: one cluster per run, replicas of servers as actors, and calls to them."""
