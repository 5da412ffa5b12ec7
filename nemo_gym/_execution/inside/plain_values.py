# SPDX-License-Identifier: Apache-2.0
"""Values as JSON and back, for two processes that do not trust each other: what comes out is made here, of known types.

Of each type there is a pair of functions: its parts, and the value from them. A list stands for itself; whatever else
JSON has no word for is an object with one key, the name of its type.
"""

import json
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

Convert = Callable[[Any], Any]
_LONG = 1 << 63
_BASES: tuple[tuple[type, Convert], ...] = (
    (str, lambda value: str.__getnewargs__(value)[0]),
    (int, lambda value: int.__getnewargs__(value)[0]),
    (float, lambda value: float.__getnewargs__(value)[0]),
    (dict, lambda value: dict(dict.items(value))),
    (list, lambda value: [*list.__iter__(value)]),
    (tuple, lambda value: (*tuple.__iter__(value),)),
    (set, lambda value: {*set.__iter__(value)}),
    (frozenset, lambda value: frozenset(frozenset.__iter__(value))),
)


def _by_type(inner: Convert) -> dict[type, tuple[str, Convert]]:
    """How values of each type become JSON; `inner` is for what they hold."""

    def items(value: Any) -> list[Any]:
        return [inner(one) for one in value]

    def pairs(value: Any) -> list[Any]:
        return [[inner(key), inner(one)] for key, one in dict.items(value)]

    return {
        int: ("int", hex),
        tuple: ("tuple", items),
        dict: ("dict", pairs),
        OrderedDict: ("OrderedDict", pairs),
        Counter: ("Counter", pairs),
        set: ("set", items),
        frozenset: ("frozenset", items),
        deque: ("deque", lambda value: [items(value), value.maxlen]),
        bytes: ("bytes", bytes.hex),
        bytearray: ("bytearray", bytearray.hex),
        complex: ("complex", lambda value: [value.real, value.imag]),
        range: ("range", lambda value: [value.start, value.stop, value.step]),
        Decimal: ("Decimal", str),
        Fraction: ("Fraction", str),
        datetime: ("datetime", datetime.isoformat),
        date: ("date", date.isoformat),
        time: ("time", time.isoformat),
        timedelta: ("timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    }


def _by_name(inner: Convert) -> dict[str, Convert]:
    """How JSON becomes a value again."""

    def items(parts: Any) -> Iterator[Any]:
        return (inner(part) for part in parts)

    def pairs(parts: Any) -> list[tuple[Any, Any]]:
        return [(inner(key), inner(part)) for key, part in parts]

    return {
        "int": lambda text: int(text, 16),
        "tuple": lambda parts: tuple(items(parts)),
        "dict": lambda parts: dict(pairs(parts)),
        "OrderedDict": lambda parts: OrderedDict(pairs(parts)),
        "Counter": lambda parts: Counter(dict(pairs(parts))),
        "set": lambda parts: set(items(parts)),
        "frozenset": lambda parts: frozenset(items(parts)),
        "deque": lambda parts: deque(items(parts[0]), parts[1]),
        "iterator": lambda parts: iter([*items(parts)]),
        "bytes": bytes.fromhex,
        "bytearray": bytearray.fromhex,
        "complex": lambda parts: complex(*parts),
        "range": lambda parts: range(*parts),
        "Decimal": Decimal,
        "Fraction": Fraction,
        "datetime": datetime.fromisoformat,
        "date": date.fromisoformat,
        "time": time.fromisoformat,
        "timedelta": lambda parts: timedelta(*parts),
    }


class PlainValues:
    """Encodes and decodes values. Objects of the classes in `shared` pass by name and attributes.

    `refer` returns a number for a value that cannot pass (or raises), and `resolve` what a number stands for.
    """

    def __init__(self, shared: Mapping[str, type], refer: Callable[[Any], int], resolve: Callable[[int], Any]) -> None:
        self._shared, self._refer, self._resolve = shared, refer, resolve
        self._encoders = _by_type(self._encode)
        self._decoders = {**_by_name(self._decode), "object": self._new_object, "remote": resolve}

    def encode(self, value: Any) -> bytes:
        """Return the value as JSON."""
        return json.dumps(self._encode(value)).encode()

    def decode(self, data: bytes) -> Any:
        """Return the value that `data` stands for."""
        return self._decode(json.loads(data))

    def _encode(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str, float) or (kind is int and -_LONG < value < _LONG):
            return value
        if kind is list:
            return [self._encode(one) for one in value]
        if kind in self._encoders:
            name, convert = self._encoders[kind]
            return {name: convert(value)}
        if self._shared.get(kind.__name__) is kind:
            return {"object": [kind.__name__, [[name, self._encode(one)] for name, one in vars(value).items()]]}
        if isinstance(value, Iterator):
            return {"iterator": [self._encode(one) for one in value]}
        # Subclasses pass as what they are derived from, which they equal, unless they were made to deceive.
        for base, copy in _BASES:
            if isinstance(value, base):
                return self._encode(copy(value))
        return {"remote": self._refer(value)}

    def _decode(self, said: Any) -> Any:
        if isinstance(said, list):
            return [self._decode(one) for one in said]
        if isinstance(said, dict):
            ((name, parts),) = said.items()
            return self._decoders[name](parts)
        return said

    def _new_object(self, parts: Any) -> Any:
        name, attributes = parts
        made: Any = object.__new__(self._shared[name])
        vars(made).update((name, self._decode(one)) for name, one in attributes)
        return made
