# SPDX-License-Identifier: Apache-2.0
"""MATH-500: competition problems from the MATH data set."""
