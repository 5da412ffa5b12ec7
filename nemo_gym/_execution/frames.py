# SPDX-License-Identifier: Apache-2.0
"""Messages to and from worker processes: eight bytes of length, then the message, over a stream socket.

The other side of these sockets is in scripts that run on their own (`cpu_template`, `inside`), and reads them plainly.
"""

import asyncio
import contextlib
import socket
import struct

_LENGTH = struct.Struct(">Q")


class Channel:
    """Our end of the socket to a worker: a question at a time, and its answer."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._is_asking = self._is_closed = False

    @property
    def is_quiet(self) -> bool:
        """Whether the other side is there and has nothing to say."""
        if self._is_closed:
            return False
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    async def ask(self, *questions: bytes) -> bytes:
        """The one answer to questions; EOFError or OSError if the other side is gone, or this one is closed."""
        self._is_asking = True
        try:
            for question in questions:
                await asyncio.get_running_loop().sock_sendall(self._sock, _LENGTH.pack(len(question)) + question)
            (length,) = _LENGTH.unpack(await _exactly(self._sock, _LENGTH.size))
            return await _exactly(self._sock, length)
        finally:
            self._is_asking = False
            if self._is_closed:
                self._sock.close()

    def close(self) -> None:
        """Hang up; whoever waits for an answer learns of it."""
        self._is_closed = True
        if self._is_asking:
            # An event loop that waits for a socket never hears that it was closed, but it hears this.
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        else:
            self._sock.close()


async def _exactly(sock: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    buffer = bytearray(size)
    view, filled = memoryview(buffer), 0
    while filled < size:
        try:
            count = await loop.sock_recv_into(sock, view[filled:])
        except ConnectionError as error:
            raise EOFError(str(error)) from error
        if count == 0:
            raise EOFError(f"the stream ended after {filled} of {size} bytes")
        filled += count
    return bytes(buffer)
