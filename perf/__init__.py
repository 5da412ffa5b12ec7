# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of the hot paths: `python -m perf`. Ratios within one run, because machines are noisy."""
