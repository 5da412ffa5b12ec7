# SPDX-License-Identifier: Apache-2.0
"""A calculator for expressions such as `2 * (x + 1) ^ 2`."""
