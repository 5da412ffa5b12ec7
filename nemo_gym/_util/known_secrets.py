# SPDX-License-Identifier: Apache-2.0
"""The secret values that this process knows, so that no log line, failure or message shows one, wherever it came from.

Keys and passwords enter when a config is read or a client is made. Whoever writes a text that others may have a part in
(an endpoint that repeats the key, a library that prints its request) masks it first. The content of a rollout is data
and is never changed.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO
from urllib.parse import quote, quote_plus

MASK = "****"
_SHORTEST = 6
_SHORTEST_OF_LETTERS = 8
_SHORTEST_ENCODED = 8
# What people write where a key is asked for and none is needed. To mask these would make logs unreadable.
_PLACEHOLDERS = frozenset(
    {
        "apikey", "changeme", "dummyapikey", "dummykey", "dummytoken", "emptykey", "fakekey", "localhost", "lmstudio",
        "mykey", "noauth", "nokey", "nokeyneeded", "nokeyrequired", "notneeded", "notrequired", "notused", "password",
        "placeholder", "tokenabc123", "undefined", "yourapikey", "yourkey",
    }
)  # fmt: skip


class KnownSecrets:
    """Secret values, and texts without them."""

    def __init__(self) -> None:
        self._values = set[str]()
        self._forms: tuple[tuple[str, bytes], ...] = ()
        self._on_change: Callable[[list[bytes]], None] | None = None

    def add(self, values: Iterable[str]) -> None:
        """Know `values` from now on; short ones and ordinary words, which no key is, are passed over."""
        lines = [line.strip() for value in values for line in (value, *value.splitlines())]
        new = {line for line in lines if _is_worth_masking(line)} - self._values
        if new:
            self._values |= new
            forms = {form for value in self._values for form in _list_forms(value)}
            # The longest first: of a secret that holds another one nothing is to stay.
            self._forms = tuple((form, form.encode()) for form in sorted(forms, key=len, reverse=True))
            if self._on_change is not None:
                self._on_change([encoded for _, encoded in self._forms])

    def call_on_change(self, callback: "Callable[[list[bytes]], None] | None") -> None:
        """Call `callback` with all forms of all secrets, now and whenever there are more; None ends that."""
        self._on_change = callback
        if callback is not None:
            callback([encoded for _, encoded in self._forms])

    def mask(self, text: str) -> str:
        """Return `text` with every secret masked, also where it is encoded: for a URL, as JSON, in base64."""
        for form, _ in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return text

    def mask_bytes(self, data: bytes) -> bytes:
        """Do what `mask` does for encoded text."""
        for _, form in self._forms:
            if form in data:
                data = data.replace(form, MASK.encode())
        return data


KNOWN_SECRETS = KnownSecrets()
"""Those of this process."""


class MaskedStream:
    """Stands in for stderr: what is written through it holds no known secret."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(KNOWN_SECRETS.mask(text))
        return len(text)

    def redirect(self, stream: TextIO) -> None:
        """Write to `stream` from now on."""
        self._stream = stream

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def describe_error(error: BaseException) -> str:
    """Return `error` as `repr` shows it, but without what others put into it: requests, their headers, known secrets.

    Every place that shows an error which may come from a library goes through here.
    """
    is_plain = all(isinstance(argument, str | bytes | int | float | None) for argument in error.args)
    if is_plain and type(error).__repr__ is BaseException.__repr__:
        return KNOWN_SECRETS.mask(repr(error))
    # `aiohttp` shows the request of its errors, with the key in its headers.
    return KNOWN_SECRETS.mask(f"{type(error).__name__}({str(error)!r})")


def _is_worth_masking(value: str) -> bool:
    word = re.sub(r"[\W_]", "", value).lower()
    if len(value) < _SHORTEST or word in _PLACEHOLDERS or len(set(value)) == 1:
        return False
    return not (value.isalpha() and len(value) < _SHORTEST_OF_LETTERS)


def _list_forms(value: str) -> Iterator[str]:
    """Yield how `value` may stand in a text."""
    yield value
    yield quote(value)
    yield quote(value, safe="")
    yield quote_plus(value)
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    # In `Basic` credentials a password stands behind the user's name: its first byte is any of the three of a group,
    # and what shares a letter with a neighbor is left out.
    data = value.encode()
    for before in range(3):
        letters = b64encode(bytes(before) + data).decode()
        inner = letters[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        if len(inner) >= _SHORTEST_ENCODED:
            yield inner
            yield inner.replace("+", "-").replace("/", "_")
