# SPDX-License-Identifier: Apache-2.0
"""Load JSON and refuse values that Python can read, but not write again."""

import json
from typing import Any


class UnusableValue(ValueError):
    """Well-formed JSON with a value that no reply could hold."""


def load_json(raw: bytes) -> Any:
    """Return the value of `raw`, as `json.loads` does; raise `UnusableValue` if it cannot be written again."""
    try:
        value = json.loads(raw)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError as error:
        raise UnusableValue("An integer in the JSON has too many digits to be read; send it as text") from error
    if b"\\ud" not in raw and b"\\uD" not in raw and b"\xed" not in raw:  # no surrogates
        return value
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UnusableValue(
            "A text in the JSON holds half of a surrogate pair, such as \\ud800, which is no character; leave it out"
        ) from error
    return value
