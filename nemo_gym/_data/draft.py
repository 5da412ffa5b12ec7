# SPDX-License-Identifier: Apache-2.0
"""A file that is written now and takes its place later, when others are ready too, or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

_BUFFER_BYTES = 1 << 20


class Draft:
    """A draft beside its target; leaving the block removes it unless it was published."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")

    def __enter__(self) -> "Draft":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.path.unlink(missing_ok=True)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """The draft, to be written from its beginning to its end."""
        with open(self.path, "wb", buffering=_BUFFER_BYTES) as file:
            yield file

    def publish(self) -> None:
        """Take the place of the target."""
        os.replace(self.path, self.target)
