# SPDX-License-Identifier: Apache-2.0
"""The catalogue: which benchmarks, environments and servers the search roots hold, and what their configs say of them.

It reads YAML as plain data and never builds a config: listing hundreds of folders takes a moment. Running any of it,
and printing what was found, is left to the callers.
"""
