# SPDX-License-Identifier: Apache-2.0
"""GPQA: science questions that cannot be looked up."""
