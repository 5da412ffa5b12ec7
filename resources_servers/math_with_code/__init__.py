# SPDX-License-Identifier: Apache-2.0
"""Calculations with a Python interpreter at hand, which keeps its variables from call to call."""
