# SPDX-License-Identifier: Apache-2.0
"""MBPP: short Python functions, tested by three assertions each."""
