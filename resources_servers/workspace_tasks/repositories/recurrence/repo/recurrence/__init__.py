# SPDX-License-Identifier: Apache-2.0
"""Dates that come again."""
