# SPDX-License-Identifier: Apache-2.0
"""AIME 2025: the 30 problems of the competition."""
