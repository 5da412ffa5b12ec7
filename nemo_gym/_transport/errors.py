# SPDX-License-Identifier: Apache-2.0
"""What a failed call raises: typed, picklable, and still the aiohttp error that callers already catch.

Each class takes plain values (strings, numbers, bytes) as constructor arguments, so that it crosses process borders.
"""

from typing import Any

import aiohttp
import orjson
from aiohttp.client_reqrep import RequestInfo
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from nemo_gym.errors import ServerCallError

_BODY_SHOWN = 2000
_UNREACHABLE_HINT = "check that the server runs and listens on this address (`gym env status`)"


def _request_info(method: str, url: str) -> RequestInfo:
    return RequestInfo(URL(url), method, CIMultiDictProxy(CIMultiDict()), URL(url))


def readable(body: bytes, limit: int = _BODY_SHOWN) -> str:
    """`body` as text for a message, cut at `limit` characters."""
    text = body[: limit * 4].decode("utf-8", errors="replace")
    return text if len(text) <= limit else f"{text[:limit]}… ({len(body)} bytes in all)"


class ServerResponseError(ServerCallError, aiohttp.ClientResponseError):
    """A server answered with an error status; `response_content` holds the body it sent.

    `failure` is what the server said of the first cause, see `failures`.
    """

    def __init__(
        self, method: str, url: str, status: int, reason: str = "", response_content: bytes = b"", failure: str = ""
    ) -> None:
        aiohttp.ClientResponseError.__init__(self, _request_info(method, url), (), status=status, message=reason)
        self.args = (method, url, status, reason, response_content, failure)
        self.method, self.url = method, url
        self.response_content, self.failure = response_content, failure

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args  # the headers of `request_info` cannot be pickled; it is made anew

    def __str__(self) -> str:
        return (
            f"{self.method} {self.url} answered {self.status} {self.message}".rstrip()
            + f": {readable(self.response_content)}"
        )


class ServerUnreachable(ServerCallError, aiohttp.ClientConnectionError):
    """No connection could be made, or it broke before an answer came; `trouble` is the kind of a `Trouble`."""

    def __init__(
        self, method: str, url: str, cause: str, attempts: int = 1, trouble: str = "", hint: str = _UNREACHABLE_HINT
    ) -> None:
        super().__init__(method, url, cause, attempts, trouble, hint)
        self.method, self.url, self.cause, self.attempts = method, url, cause, attempts
        self.trouble, self.hint = trouble, hint

    def __str__(self) -> str:
        tries = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"{self.method} {self.url} got no answer after {tries}: {self.cause}\nhint: {self.hint}"


class ServerDeadlineExceeded(ServerCallError, TimeoutError):
    """The answer did not come within the deadline."""

    def __init__(self, method: str, url: str, timeout_s: float) -> None:
        super().__init__(method, url, timeout_s)
        self.args = (method, url, timeout_s)  # an OSError, which this is, takes a third argument for a file name
        self.method, self.url, self.timeout_s = method, url, timeout_s

    def __str__(self) -> str:
        return f"{self.method} {self.url} gave no answer within {self.timeout_s:g} s"


class InvalidServerReply(ServerCallError, orjson.JSONDecodeError):
    """A reply that is not the JSON it should be."""

    def __init__(self, method: str, url: str, status: int, content_type: str, body: bytes, reason: str) -> None:
        orjson.JSONDecodeError.__init__(self, reason, readable(body), 0)
        self.args = (method, url, status, content_type, body, reason)
        self.method, self.url, self.status = method, url, status
        self.content_type, self.response_content, self.reason = content_type, body, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args

    def __str__(self) -> str:
        return (
            f"{self.method} {self.url} answered {self.status} with {self.content_type or 'no content type'}, "
            f"which is not the expected JSON ({self.reason}): {readable(self.response_content, 200)!r}"
        )
