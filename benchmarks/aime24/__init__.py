# SPDX-License-Identifier: Apache-2.0
"""AIME 2024: the 30 problems of the competition."""
