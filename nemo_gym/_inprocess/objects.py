# SPDX-License-Identifier: Apache-2.0
"""What crosses between two servers of one process without becoming bytes: a task's create params and its response.

These two are large and both sides know their classes. Where the receiving class declares exactly them, each side has
its own object with lists of its own, and only the items in these are shared; everything else crosses as JSON. A value
that does not fit this way is sent as bytes, which decide what is wrong with it.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from http.cookies import SimpleCookie
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import orjson
from pydantic import BaseModel, ValidationError

from nemo_gym._inprocess.call import LocalResponse, add_cookie
from nemo_gym._wire.params import NeMoGymResponseCreateParamsNonStreaming
from nemo_gym._wire.response import NeMoGymResponse

HANDED: frozenset[Any] = frozenset({NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming})
"""The classes whose instances are handed over."""
Handed = NeMoGymResponse | NeMoGymResponseCreateParamsNonStreaming

ModelT = TypeVar("ModelT", bound=BaseModel)


class LocalCall(NamedTuple):
    """What a caller sends."""

    method: str
    url: str
    path: str
    server: tuple[str, int]
    json: Any
    headers: Mapping[str, str] | None = None
    cookies: Mapping[str, Any] | None = None


@lru_cache(maxsize=1024)
def handed_fields(kind: Any) -> tuple[str, ...]:
    """The fields of `kind` that a handed value may fill: declared as its class, and nobody looks at the raw data."""
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return ()
    looks = kind.__pydantic_decorators__
    if looks.validators or looks.root_validators or looks.model_validators or looks.model_serializers:
        return ()
    looked_at = {
        name
        for found in (looks.field_validators, looks.field_serializers)
        for decorator in found.values()
        for name in decorator.info.fields
    }
    return tuple(
        name
        for name, field in kind.model_fields.items()
        if field.annotation in HANDED and not (field.alias or field.validation_alias or field.serialization_alias)
        if not field.metadata and not looked_at & {name, "*"}
    )


@lru_cache(maxsize=1024)
def read_fields(kind: Any) -> frozenset[str] | None:
    """The names under which `kind` reads anything of a JSON object at all; None if it may read whatever there is."""
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return None
    looks = kind.__pydantic_decorators__
    is_open = kind.model_config.get("extra", "ignore") != "ignore" or kind.__init__ is not BaseModel.__init__
    is_renamed = any(field.alias or field.validation_alias for field in kind.model_fields.values())
    if is_open or is_renamed or looks.root_validators or looks.model_validators:
        return None
    return frozenset(kind.model_fields)


def as_set(value: BaseModel) -> dict[str, Any]:
    """The fields of `value` that were set, as they are."""
    given = value.__dict__
    return {name: given[name] for name in value.__pydantic_fields_set__ if name in given}


def own(value: Handed) -> Handed:
    """The receiver's own `value`: what he sets on it, or adds to its lists, stays his."""
    copied = value.__copy__()
    fields = copied.__dict__
    for name in ("output" if "output" in fields else "input", "tools"):
        if type(fields.get(name)) is list:
            fields[name] = fields[name].copy()
    return copied


def parts_of(value: Any) -> dict[str, Any] | None:
    """`value` as a JSON object, except that handed values stay themselves; None if it has none."""
    names = handed_fields(value.__class__)
    carried = {name: value.__dict__[name] for name in names if type(value.__dict__.get(name)) in HANDED}
    if not carried:
        return None
    rest = value.model_dump(mode="json", by_alias=True, exclude=set(carried), warnings=False)
    # In the order of the fields, which is that of the bytes: the two come first in every class of the contract.
    first = next(iter(type(value).model_fields))
    return {**carried, **rest} if first in carried else {**rest, **carried}


class Session(Protocol):
    """The session in which a handler has worked."""

    def set_cookie(self) -> str:
        """Its `Set-Cookie` header."""

    def is_beside(self, other: Any) -> bool:
        """Whether `other` is a session of the same server."""


class UnmadeCookies(Mapping[str, Any]):
    """The cookies of a reply, for a caller who only sends them back: the server then needs just the session."""

    __slots__ = ("_reply", "session")

    def __init__(self, reply: "HandedResponse", session: Session) -> None:
        self._reply, self.session = reply, session

    def __getitem__(self, name: str) -> Any:
        return self._reply.cookies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._reply.cookies)

    def __len__(self) -> int:
        return len(self._reply.cookies)

    def __bool__(self) -> bool:
        return True  # every reply has the cookie of its session

    def succeeds(self, others: Mapping[str, Any]) -> bool:
        """Whether these take the place of all `others`."""
        return isinstance(others, UnmadeCookies) and self.session.is_beside(others.session)


class HandedResponse(LocalResponse):
    """A good reply that becomes bytes only for a caller who reads bytes."""

    def __init__(
        self, method: str, url: str, content: bytes | NeMoGymResponse | dict[str, Any], session: Session | None
    ) -> None:
        """`content` is the reply itself, or what `parts_of` made of it."""
        super().__init__(method, url, 200, [], content if isinstance(content, bytes) else b"")
        self._handed, self._session = content, session

    @property
    def unmade_cookies(self) -> UnmadeCookies | None:
        """The cookies, to be sent back with another call; None if there is no session."""
        return None if self._session is None else UnmadeCookies(self, self._session)

    def as_kind(self, kind: type[ModelT]) -> ModelT | None:
        """The reply as a `kind`; None if only its bytes can tell."""
        handed = self._handed
        if type(handed) is NeMoGymResponse and kind is NeMoGymResponse:
            if all(isinstance(item, BaseModel) for item in handed.output):
                return cast(ModelT, own(handed))  # the server may keep its own, and give it to others
            fields = {**handed.__dict__, **(handed.__pydantic_extra__ or {})}
        elif type(handed) is dict and handed_fields(kind):
            names = handed_fields(kind)
            fields = {
                name: part if name in names or type(part) not in HANDED else _plain(part)
                for name, part in handed.items()
            }
        else:
            return None
        try:
            return kind.model_validate(fields)
        except ValidationError:
            return None

    def _bytes(self) -> bytes:
        if not self._body:
            handed = self._handed
            self._body = (
                handed.model_dump_json().encode()
                if isinstance(handed, NeMoGymResponse)
                else orjson.dumps(handed, default=_fragment)
            )
        return self._body

    def _head(self) -> list[tuple[bytes, bytes]]:
        if not self._raw_headers:
            size, kind = (b"content-length", b"%d" % len(self._bytes())), (b"content-type", b"application/json")
            cookie = [(b"set-cookie", self._session.set_cookie().encode("latin-1"))] if self._session else []
            self._raw_headers = [size, kind, *cookie]
        return self._raw_headers

    @property
    def cookies(self) -> SimpleCookie:
        if self._cookies is None:
            self._cookies = SimpleCookie()
            if self._session is not None:
                add_cookie(self._cookies, self._session.set_cookie())
        return self._cookies


def _fragment(value: Any) -> Any:
    return orjson.Fragment(value.model_dump_json(by_alias=True, warnings=False))


def _plain(value: BaseModel) -> Any:
    return value.model_dump(mode="json", by_alias=True, warnings=False)
