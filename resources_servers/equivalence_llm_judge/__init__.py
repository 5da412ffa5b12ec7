# SPDX-License-Identifier: Apache-2.0
"""Questions with an answer in words: a judge decides whether the reply says the same."""
