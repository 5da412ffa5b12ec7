# SPDX-License-Identifier: Apache-2.0
"""Replies of bounded size: one that is larger is given up while it comes in, and never held in memory."""

import aiohttp
from aiohttp import hdrs

from nemo_gym.errors import ServerCallError

MAX_MODEL_REPLY_BYTES = 64 * 2**20
MAX_SERVER_REPLY_BYTES = 2**30


class ReplyTooLarge(ServerCallError):
    """A reply has more than `limit_bytes` after decompression; `setting` is the key that allows more."""

    def __init__(self, method: str, url: str, limit_bytes: int, setting: str) -> None:
        super().__init__(method, url, limit_bytes, setting)
        self.method, self.url, self.limit_bytes, self.setting = method, url, limit_bytes, setting

    def __str__(self) -> str:
        return (
            f"the reply to {self.method} {self.url} is too large.\n"
            f"it has more than {self.limit_bytes / 2**20:g} MiB after decompression, and was not read to its end.\n"
            f"hint: look at what answers there; `++{self.setting}=BYTES` allows more"
        )


class BoundedResponse(aiohttp.ClientResponse):
    """A response whose body has at most `limit_bytes`."""

    limit_bytes = MAX_SERVER_REPLY_BYTES
    setting = "max_server_reply_bytes"

    def bound_model_reply(self, limit_bytes: int) -> None:
        """Expect what a model's endpoint sends."""
        self.limit_bytes, self.setting = limit_bytes, "max_model_reply_bytes"

    async def read(self) -> bytes:
        declared = self.content_length
        if self._body is None and (declared is None or hdrs.CONTENT_ENCODING in self.headers):
            self._body = await self._read_in_parts()
        elif self._body is None and declared is not None and declared > self.limit_bytes:
            raise self._give_up()
        return await super().read()

    async def _read_in_parts(self) -> bytes:
        parts, size = list[bytes](), 0
        try:
            async for part in self.content.iter_any():
                size += len(part)
                if size > self.limit_bytes:
                    raise self._give_up()
                parts.append(part)
        except BaseException:
            self.close()
            raise
        return b"".join(parts)

    def _give_up(self) -> ReplyTooLarge:
        self.close()
        return ReplyTooLarge(self.method, str(self.url), self.limit_bytes, self.setting)
