# SPDX-License-Identifier: Apache-2.0
"""GEM's environments, played step by step: games, reasoning, mathematics, code and questions."""
