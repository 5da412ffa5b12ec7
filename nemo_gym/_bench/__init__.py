# SPDX-License-Identifier: Apache-2.0
"""The parts of `gym bench`, and `gym bench plan`. Ratios within one run, because machines are noisy."""
