# SPDX-License-Identifier: Apache-2.0
"""Files of rows, for tests: a conftest that imports the fixture offers it to its folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write rows (objects, or raw bytes for a damaged line) to a file, a line each."""

    def write(name: str, rows: list[Any], end: bytes = b"\n") -> Path:
        lines = [row if isinstance(row, bytes) else orjson.dumps(row) for row in rows]
        path = tmp_path / name
        path.write_bytes(b"\n".join(lines) + (end if lines else b""))
        return path

    return write
