# SPDX-License-Identifier: Apache-2.0
"""Frames on a stream between two event loops: the size of a content, then the content.

The pipes of `nemo_gym._isolation` have a framing of their own: they are read by processes that block, and that hold
none of this package.
"""

from collections.abc import Iterator
from struct import Struct

SIZE = Struct("!I")


def build_frame(*parts: bytes) -> bytes:
    """Return the frame whose content is all of `parts`."""
    return b"".join((SIZE.pack(sum(map(len, parts))), *parts))


class FrameSplitter:
    """Takes a stream apart into frames, as its bytes arrive."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """Yield the content of every frame that `data` completes."""
        if self._rest:
            self._rest += data
            if not self._begins_with_a_frame():  # a large one comes in many pieces
                return
            data = bytes(self._rest)
        start = 0
        view = memoryview(data)
        while len(data) - start >= SIZE.size:
            begin = start + SIZE.size
            end = begin + SIZE.unpack_from(data, start)[0]
            if end > len(data):
                break
            yield view[begin:end]
            start = end
        self._rest = bytearray(view[start:])

    def _begins_with_a_frame(self) -> bool:
        if len(self._rest) < SIZE.size:
            return False
        size: int = SIZE.unpack_from(self._rest)[0]
        return len(self._rest) >= SIZE.size + size
