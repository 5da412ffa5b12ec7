# SPDX-License-Identifier: Apache-2.0
"""A complete reply with aiohttp's interface, so that code written for aiohttp can read it."""

from collections.abc import AsyncIterator
from functools import lru_cache
from http import HTTPStatus
from http.cookies import Morsel, SimpleCookie
from typing import Any, Self

import orjson
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from nemo_gym._transport.call_errors import ServerResponseError

RawHeaders = list[tuple[bytes, bytes]]


class WholeContent:
    """The `content` of a response: the part of aiohttp's StreamReader that callers use."""

    def __init__(self, body: bytes) -> None:
        self._rest = body

    async def read(self, n: int = -1) -> bytes:
        if n < 0:
            n = len(self._rest)
        part = self._rest[:n]
        self._rest = self._rest[n:]
        return part

    async def readline(self) -> bytes:
        line, newline, self._rest = self._rest.partition(b"\n")
        return line + newline

    async def iter_any(self) -> AsyncIterator[bytes]:
        if part := await self.read():
            yield part

    async def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        while part := await self.read(n):
            yield part

    def at_eof(self) -> bool:
        return not self._rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while line := await self.readline():
            yield line


class WholeResponse:
    """Stands in for `aiohttp.ClientResponse`. It is complete, so nothing has to be released."""

    history: tuple[Any, ...] = ()
    closed = True
    # Made on demand; `cached_property` takes a lock each time.
    _content: WholeContent | None = None
    _headers: CIMultiDictProxy[str] | None = None
    _cookies: SimpleCookie | None = None

    def __init__(self, method: str, url: str, status: int, raw_headers: RawHeaders, body: bytes) -> None:
        self.method = method
        self.status = status
        self._url = url
        self._raw_headers = raw_headers
        self._body = body

    @property
    def content(self) -> WholeContent:
        if self._content is None:
            self._content = WholeContent(self.encode_body())
        return self._content

    @property
    def ok(self) -> bool:
        return self.status < 400

    @property
    def reason(self) -> str:
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:
            return ""

    @property
    def url(self) -> URL:
        return URL(self._url)

    real_url = url

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        if self._headers is None:
            pairs = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in self._encode_headers())
            self._headers = CIMultiDictProxy(CIMultiDict(pairs))
        return self._headers

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "application/octet-stream").partition(";")[0].strip()

    @property
    def cookies(self) -> SimpleCookie:
        if self._cookies is None:
            self._cookies = SimpleCookie()
            for name, value in self._encode_headers():
                if name.lower() == b"set-cookie":
                    add_cookie(self._cookies, value.decode("latin-1"))
        return self._cookies

    async def read(self) -> bytes:
        return self.encode_body()

    async def text(self, encoding: str | None = None, errors: str = "strict") -> str:
        return self.encode_body().decode(encoding or "utf-8", errors)

    async def json(self, **_: Any) -> Any:
        return orjson.loads(self.encode_body())

    def raise_for_status(self) -> None:
        if not self.ok:
            raise ServerResponseError(self.method, self._url, self.status, self.reason, self.encode_body())

    def release(self) -> None:
        """Do nothing: nothing is held."""

    def close(self) -> None:
        """Do nothing: nothing is held."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def encode_body(self) -> bytes:
        """Return the body without awaiting."""
        return self._body

    def _encode_headers(self) -> RawHeaders:
        return self._raw_headers


def add_cookie(jar: SimpleCookie, header: str) -> None:
    """Put a `Set-Cookie` header into `jar`."""
    pair, _, attributes = header.partition(";")
    name, _, value = pair.strip().partition("=")
    # This way of making a morsel skips checks meant for cookies one writes, not for cookies one reads.
    morsel: Morsel[str] = Morsel.__new__(Morsel)
    dict.update(morsel, _parse_cookie_attributes(attributes))
    morsel.__setstate__({"key": name, "value": value.strip('"'), "coded_value": value})  # type: ignore[attr-defined]
    dict.__setitem__(jar, name, morsel)


@lru_cache(maxsize=256)
def _parse_cookie_attributes(text: str) -> dict[str, Any]:
    """Return all attributes of a cookie, cached because a server writes the same ones each time. Do not change it."""
    morsel: Morsel[str] = Morsel()
    for attribute in text.split(";"):
        key, _, setting = attribute.strip().partition("=")
        if morsel.isReservedKey(key):
            morsel[key] = setting or True
    return dict(morsel)
