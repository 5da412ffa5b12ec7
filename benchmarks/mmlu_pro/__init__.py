# SPDX-License-Identifier: Apache-2.0
"""MMLU-Pro: questions from many fields with up to ten options."""
