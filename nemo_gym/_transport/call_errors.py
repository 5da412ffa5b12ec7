# SPDX-License-Identifier: Apache-2.0
"""What a failed call raises: typed, picklable, and still the aiohttp error that callers already catch.

Each class takes plain values (strings, numbers, bytes) as constructor arguments, so that it can cross processes.
A `Trouble` tells people why no connection was made, and what they can do about it.
"""

import errno
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
import orjson
from aiohttp.client_reqrep import RequestInfo
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from nemo_gym._util.secret_names import mask_url_credentials
from nemo_gym.errors import ServerCallError

_BODY_SHOWN = 2000
_UNREACHABLE_HINT = "check that the server is running and listening on this address (`gym env status`)"


def build_request_info(method: str, url: str) -> RequestInfo:
    """Return what aiohttp's errors say about a request."""
    return RequestInfo(URL(url), method, CIMultiDictProxy(CIMultiDict()), URL(url))


def quote_body(body: bytes, limit: int = _BODY_SHOWN) -> str:
    """Return `body` as text for a message, cut at `limit` characters."""
    text = body[: limit * 4].decode("utf-8", errors="replace")
    return text if len(text) <= limit else f"{text[:limit]}… ({len(body)} bytes in all)"


class ServerResponseError(ServerCallError, aiohttp.ClientResponseError):
    """A server answered with an error status; `response_content` holds the body it sent.

    `failure` is what the server said about the first cause (see `failures`), `retry_after` its header of that name.
    """

    def __init__(
        self,
        method: str,
        url: str,
        status: int,
        reason: str = "",
        response_content: bytes = b"",
        failure: str = "",
        retry_after: str = "",
    ) -> None:
        aiohttp.ClientResponseError.__init__(self, build_request_info(method, url), (), status=status, message=reason)
        self.args = (method, url, status, reason, response_content, failure, retry_after)
        self.method = method
        self.url = url
        self.response_content = response_content
        self.failure = failure
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args  # the headers of `request_info` cannot be pickled; it is rebuilt

    def __str__(self) -> str:
        return (
            f"{self.method} {self.url} answered {self.status} {self.message}".rstrip()
            + f": {quote_body(self.response_content)}"
        )


class ServerUnreachable(ServerCallError, aiohttp.ClientConnectionError):
    """No connection could be made, or it broke before an answer came; `trouble` is the kind of a `Trouble`."""

    def __init__(
        self, method: str, url: str, cause: str, attempts: int = 1, trouble: str = "", hint: str = _UNREACHABLE_HINT
    ) -> None:
        super().__init__(method, url, cause, attempts, trouble, hint)
        self.method = method
        self.url = url
        self.cause = cause
        self.attempts = attempts
        self.trouble = trouble
        self.hint = hint

    def __str__(self) -> str:
        tries = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"{self.method} {self.url} got no answer after {tries}: {self.cause}\nhint: {self.hint}"


class ServerDeadlineExceeded(ServerCallError, TimeoutError):
    """The answer did not come within the deadline."""

    def __init__(self, method: str, url: str, timeout_s: float) -> None:
        super().__init__(method, url, timeout_s)
        self.args = (method, url, timeout_s)  # OSError, a base class, takes a third argument for a file name
        self.method = method
        self.url = url
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return f"{self.method} {self.url} gave no answer within {self.timeout_s:g} s"


class InvalidServerReply(ServerCallError, orjson.JSONDecodeError):
    """A reply that is not the JSON it should be."""

    def __init__(self, method: str, url: str, status: int, content_type: str, body: bytes, reason: str) -> None:
        orjson.JSONDecodeError.__init__(self, reason, quote_body(body), 0)
        self.args = (method, url, status, content_type, body, reason)
        self.method = method
        self.url = url
        self.status = status
        self.content_type = content_type
        self.response_content = body
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args

    @property
    def has_unusable_value(self) -> bool:
        """Whether it is JSON but for half of a surrogate pair, or a number that no float holds."""
        return "surrogate" in self.reason or "number is infinity" in self.reason

    def __str__(self) -> str:
        return (
            f"{self.method} {self.url} answered {self.status} with {self.content_type or 'no content type'}, "
            f"which is not the expected JSON ({self.reason}): {quote_body(self.response_content, 200)!r}"
        )


class ReplyTooLarge(ServerCallError):
    """A reply has more than `limit_bytes` after decompression; `setting` is the key that allows more."""

    def __init__(self, method: str, url: str, limit_bytes: int, setting: str) -> None:
        super().__init__(method, url, limit_bytes, setting)
        self.method = method
        self.url = url
        self.limit_bytes = limit_bytes
        self.setting = setting

    def __str__(self) -> str:
        return (
            f"the reply to {self.method} {self.url} is too large.\n"
            f"it has more than {self.limit_bytes / 2**20:g} MiB after decompression, and was not read to its end.\n"
            f"hint: look at what answers there; `++{self.setting}=BYTES` allows more"
        )


# --- why no connection was made ---------------------------------------------------------------------------------------

TroubleKind = Literal["refused", "unknown host", "TLS", "not HTTP", "redirect", "unreachable", "no answer", "broken"]


@dataclass(frozen=True)
class Trouble:
    """What kept a call from getting an answer."""

    kind: TroubleKind
    text: str
    hint: str


_REASON_SHOWN = 200

NO_TLS_THERE = Trouble("TLS", "it speaks plain HTTP, not TLS", "write `http://` instead of `https://` in the URL")
_REDIRECT_HINT = "check the path of the URL; if it has moved, write the new URL into the config"
REDIRECTS_IN_A_CIRCLE = Trouble("redirect", "it redirects in a circle", _REDIRECT_HINT)
ONLY_TLS_THERE = Trouble("TLS", "it speaks TLS, not plain HTTP", "write `https://` instead of `http://` in the URL")


def describe_trouble(error: BaseException) -> Trouble:
    """Explain to a person `error`, which a connection or a call over it raised."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        text = f"its certificate is not accepted ({error.certificate_error})"
        return Trouble("TLS", text, "give the host its certificate names, or let SSL_CERT_FILE name its authority")
    if isinstance(error, aiohttp.ClientSSLError):
        if "WRONG_VERSION_NUMBER" in str(error):
            return NO_TLS_THERE
        return Trouble("TLS", f"the TLS handshake failed ({error})", "check `http://` or `https://` in the URL")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Trouble("unknown host", f"the name {error.host!r} does not resolve", "check the host name in the URL")
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if cause.errno == errno.ECONNREFUSED:
            hint = "check host and port of the URL, and that the server is running and listening there"
            return Trouble("refused", "connection refused", hint)
        return Trouble("unreachable", str(cause.strerror or cause), "check the host in the URL, and the network")
    if isinstance(error, aiohttp.TooManyRedirects):
        return REDIRECTS_IN_A_CIRCLE
    if isinstance(error, aiohttp.InvalidURL):
        return Trouble(
            "redirect", f"{mask_url_credentials(str(error.url))} is not a URL that can be called", _REDIRECT_HINT
        )
    if isinstance(error, aiohttp.ClientResponseError):
        reason = " ".join(error.message.split())[:_REASON_SHOWN] or type(error).__name__
        hint = "check host and port of the URL: another kind of server listens there"
        return Trouble("not HTTP", f"its answer is not HTTP that can be read ({reason})", hint)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Trouble("unreachable", "no connection in time", "check host and port of the URL, and any firewall")
    if isinstance(error, TimeoutError):
        return Trouble("no answer", "connected, but no answer in time", "look at the log of the server")
    text = f"the connection broke before an answer came ({str(error) or type(error).__name__})"
    return Trouble("broken", text, "look at the log of the server")


def describe_redirect(origin: str) -> Trouble:
    """Explain to a person a redirect to another origin, which is not followed."""
    text = f"it redirects to {origin}, where the key is not sent"
    return Trouble("redirect", text, "if you trust that server, write its URL into the config instead")
