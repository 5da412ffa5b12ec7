# SPDX-License-Identifier: Apache-2.0
"""Blackjack against a dealer, one action a turn, with a deck that is the same for the same task."""
