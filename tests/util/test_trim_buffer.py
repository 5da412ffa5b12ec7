# SPDX-License-Identifier: Apache-2.0
"""What is held for long is held without the room it was written in."""

import orjson
import psutil

from nemo_gym._util.trim_buffer import trim_buffer


def resident() -> int:
    return psutil.Process().memory_info().rss


def test_a_copy_is_the_same_bytes_in_less_memory():
    value = {"text": "x" * 4_200}  # just too long for a buffer of 4 KiB, so it is in one of 8
    before = resident()
    kept = [trim_buffer(orjson.dumps(value)) for _ in range(5_000)]
    between = resident()
    whole = [orjson.dumps(value) for _ in range(5_000)]
    assert kept == whole
    assert between - before < 0.75 * (resident() - between)
