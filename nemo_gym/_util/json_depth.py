# SPDX-License-Identifier: Apache-2.0
"""Detect JSON that is nested too deeply: some libraries can read it, but not write it, or run out of stack."""

from typing import Any

import orjson

MAX_DEPTH = 200
"""Levels that a request or a result may have, which is what pydantic reads."""
MAX_REPLY_DEPTH = 150
"""Levels that a model's reply may have: it becomes a part of requests."""
_ORJSON_WRITES = 254


def is_too_deep(raw: bytes, value: Any, max_depth: int = MAX_DEPTH) -> bool:
    """Return whether `value`, the content of the JSON text `raw`, has more than `max_depth` levels."""
    if raw.count(b"{") + raw.count(b"[") <= max_depth:
        return False
    for _ in range(_ORJSON_WRITES - max_depth):
        value = [value]
    try:
        orjson.dumps(value)  # the fastest way to look at all of it
    except TypeError as error:
        return "Recursion" in str(error)
    return False
