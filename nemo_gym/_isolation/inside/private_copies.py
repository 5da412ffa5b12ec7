# SPDX-License-Identifier: Apache-2.0
"""What our code in a child uses after untrusted code ran in the same process: builtins, JSON and messages.

These are private copies: a program that replaces `builtins.len`, `json.dumps` or `os.read` changes them for itself
only. A message is eight bytes of length, then the content.
"""

import builtins
import importlib.util
import os
import struct
from types import ModuleType
from typing import Any

BUILTINS: dict[str, Any] = dict(vars(builtins))
__builtins__ = BUILTINS  # type: ignore[assignment]

MAX_MESSAGE_BYTES = 1 << 30
CHUNK_BYTES = 1 << 20
LENGTH = struct.Struct(">Q")
_read = os.read
_write = os.write


def _load_again(name: str) -> ModuleType:
    """Return a second instance of a module, with builtins of its own."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    module.__dict__["__builtins__"] = BUILTINS
    spec.loader.exec_module(module)
    return module


encode_json = _load_again("json.encoder").JSONEncoder().encode
decode_json = _load_again("json.decoder").JSONDecoder().decode


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`."""
    view = memoryview(data)
    while view:
        view = view[_write(fd, view) :]


def send_message(fd: int, message: bytes) -> None:
    """Send a message over a stream."""
    write_all(fd, LENGTH.pack(len(message)) + message)


def receive_message(fd: int) -> bytes:
    """Return the next message; raise EOFError if the other side is gone or sends something else."""
    (size,) = LENGTH.unpack(_read_exactly(fd, LENGTH.size))
    if size > MAX_MESSAGE_BYTES:
        raise EOFError  # this is not a length, so the stream is unusable
    return _read_exactly(fd, size)


def _read_exactly(fd: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = _read(fd, min(size - len(data), CHUNK_BYTES))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)
