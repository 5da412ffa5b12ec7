# SPDX-License-Identifier: Apache-2.0
"""The only place that prints. Data goes to stdout, everything else to stderr."""

import sys
from typing import Any

import orjson


def data(text: str) -> None:
    """Text that is the result of a command."""
    print(text, flush=True)


def json_data(value: Any) -> None:
    """A value that is the result of a command, as JSON."""
    data(orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode())


def note(text: str) -> None:
    """Something the user should know, beside the result."""
    print(text, file=sys.stderr, flush=True)


def error(text: str) -> None:
    """Why a command failed."""
    note(f"Error: {text}")
