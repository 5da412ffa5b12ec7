# SPDX-License-Identifier: Apache-2.0
"""The environments of GEM, played step by step: games, reasoning, mathematics, code and questions."""
