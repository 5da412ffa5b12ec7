# SPDX-License-Identifier: Apache-2.0
"""JSON whose values can be passed on: Python reads text and integers that it cannot write again."""

import json
from typing import Any


class UnusableValue(ValueError):
    """JSON that is well formed, with a value that no reply could hold."""


def load_json(raw: bytes) -> Any:
    """Return the value of `raw`, as `json.loads` does; raise `UnusableValue` for one that can't be passed on."""
    try:
        value = json.loads(raw)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError as error:
        raise UnusableValue("An integer in the JSON has too many digits to be read; send it as text") from error
    if not _may_hold_surrogate(raw):
        return value
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UnusableValue(
            "A text in the JSON holds half of a surrogate pair, such as \\ud800, which is no character; leave it out"
        ) from error
    return value


def _may_hold_surrogate(raw: bytes) -> bool:
    return b"\\ud" in raw or b"\\uD" in raw or b"\xed" in raw
