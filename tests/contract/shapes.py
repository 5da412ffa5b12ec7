# SPDX-License-Identifier: Apache-2.0
"""How the tables of the public contract say what a name is.

The tables are in `surface_*.py`; how an entry is checked is in `test_surface.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


class _Mark:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


REQUIRED = _Mark("REQUIRED")  # a field without default
OPTIONAL = _Mark("OPTIONAL")  # a field with a default that the specification leaves open
ANY_VALUE = _Mark("ANY_VALUE")  # a constant whose value the specification leaves open


@dataclass(frozen=True)
class Name:
    """One name of a module. Signatures are written as the parameters of a lambda; `...` is a default left open."""

    name: str
    kind: str
    signature: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    methods: tuple["Name", ...] = ()
    value: Any = ANY_VALUE
    bases: tuple[str, ...] = ()


def constant(name: str, value: Any = ANY_VALUE) -> Name:
    return Name(name, "constant", value=value)


def function(name: str, signature: str) -> Name:
    return Name(name, "function", signature)


def coroutine(name: str, signature: str) -> Name:
    return Name(name, "coroutine function", signature)


def context(name: str, signature: str) -> Name:
    return Name(name, "context manager", signature)


def attribute(name: str) -> Name:
    return Name(name, "property")


def model(name: str, fields: str = "", /, *methods: Name, bases: str = "", **defaults: Any) -> Name:
    """A pydantic model: `fields` lists the required ones, keywords the others with their defaults."""
    stated = {**dict.fromkeys(fields.split(), REQUIRED), **defaults}
    return Name(name, "model", fields=stated, methods=methods, bases=tuple(bases.split()))


def dataclass_(name: str, fields: str = "", /, **defaults: Any) -> Name:
    return Name(name, "dataclass", fields={**dict.fromkeys(fields.split(), REQUIRED), **defaults})


def class_(name: str, signature: str | None = None, *methods: Name, bases: str = "") -> Name:
    return Name(name, "class", signature, methods=methods, bases=tuple(bases.split()))


def error(name: str, *bases: str) -> Name:
    return Name(name, "exception", bases=bases)


def enum(name: str, *values: str) -> Name:
    return Name(name, "enum", value=values)


def typed_dict(name: str, keys: str) -> Name:
    return Name(name, "typed dict", fields=dict.fromkeys(keys.split(), REQUIRED))


def each(names: str, default: Any = None) -> dict[str, Any]:
    """The same default for several fields."""
    return dict.fromkeys(names.split(), default)


def aliases(names: str) -> Iterable[Name]:
    """Types that annotations are made of: unions, lists, literals."""
    return (Name(name, "alias") for name in names.split())


def same(name: str, as_: str) -> Name:
    """A name that is also, and first of all, found elsewhere; both are one object."""
    return Name(name, "same object", value=as_)
