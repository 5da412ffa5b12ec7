# SPDX-License-Identifier: Apache-2.0
"""Bytes that are held for a while take no more memory than they need."""


def right_sized(written: bytes) -> bytes:
    """A copy of what orjson has written, which keeps the whole buffer it was written to: up to twice its length."""
    return bytes(memoryview(written))
