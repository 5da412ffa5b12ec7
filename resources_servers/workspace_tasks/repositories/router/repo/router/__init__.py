# SPDX-License-Identifier: Apache-2.0
"""Finds out which handler an address belongs to."""
