# SPDX-License-Identifier: Apache-2.0
"""Use a program from another process, so that the program does not run where its answers are compared.

Plain values pass as copies, and so do objects of classes that the task gives to both sides. Anything else becomes a
`RemoteObject` in the tests, which they can call, ask for attributes and pass back; it equals only itself.

The two processes do not trust each other: the receiver of a message builds only values of known types. Each type has a
pair of functions, one to take a value apart and one to put it together again. A list is a JSON array; any other value
that JSON does not have is an object with one key, the name of its type.
"""

import contextlib
import json
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from nemo_gym._isolation.inside.private_copies import BUILTINS, receive_message, send_message

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


def _make_converters(encode: Convert, decode: Convert) -> list[tuple[type, str, Convert, Convert]]:
    """Return, for each type, its name, how to take a value apart, and how to put it together again.

    `encode` and `decode` convert the items of a value.
    """

    def split(value: Any) -> list[Any]:
        return [encode(one) for one in value]

    def split_pairs(value: Any) -> list[Any]:
        return [[encode(key), encode(one)] for key, one in dict.items(value)]

    def join(kind: Convert) -> Convert:
        return lambda parts: kind([decode(part) for part in parts])

    def join_pairs(kind: Convert) -> Convert:
        return lambda parts: kind({decode(key): decode(part) for key, part in parts})

    return [
        (int, "int", hex, lambda text: int(text, 16)),
        (tuple, "tuple", split, join(tuple)),
        (dict, "dict", split_pairs, join_pairs(dict)),
        (OrderedDict, "OrderedDict", split_pairs, join_pairs(OrderedDict)),
        (Counter, "Counter", split_pairs, join_pairs(Counter)),
        (set, "set", split, join(set)),
        (frozenset, "frozenset", split, join(frozenset)),
        (Iterator, "iterator", split, join(iter)),
        (
            deque,
            "deque",
            lambda value: [split(value), value.maxlen],
            lambda parts: deque(join(list)(parts[0]), parts[1]),
        ),
        (bytes, "bytes", bytes.hex, bytes.fromhex),
        (bytearray, "bytearray", bytearray.hex, bytearray.fromhex),
        (complex, "complex", lambda value: [value.real, value.imag], lambda parts: complex(*parts)),
        (range, "range", lambda value: [value.start, value.stop, value.step], lambda parts: range(*parts)),
        (Decimal, "Decimal", str, Decimal),
        (Fraction, "Fraction", str, Fraction),
        (datetime, "datetime", datetime.isoformat, datetime.fromisoformat),
        (date, "date", date.isoformat, date.fromisoformat),
        (time, "time", time.isoformat, time.fromisoformat),
        (
            timedelta,
            "timedelta",
            lambda value: [value.days, value.seconds, value.microseconds],
            lambda parts: timedelta(*parts),
        ),
    ]


class PlainValues:
    """Encodes and decodes values. Objects of the classes in `shared` pass by name and attributes.

    `refer` returns a number for a value that cannot pass, or raises; `resolve` returns the value of a number.
    """

    def __init__(self, shared: Mapping[str, type], refer: Callable[[Any], int], resolve: Callable[[int], Any]) -> None:
        self._shared = shared
        self._refer = refer
        self._resolve = resolve
        converters = _make_converters(self._encode, self._decode)
        self._encoders = {kind: (name, split) for kind, name, split, _ in converters}
        self._decoders = {name: join for _, name, _, join in converters}
        self._decoders |= {"object": self._new_object, "remote": resolve}

    def encode(self, value: Any) -> bytes:
        """Return the value as JSON."""
        return json.dumps(self._encode(value)).encode()

    def decode(self, data: bytes) -> Any:
        """Return the value that `data` encodes."""
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
        # Subclasses pass as their base class, which they equal unless they were made to deceive.
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


def find_classes(names: Mapping[str, Any], module_name: str) -> dict[str, type]:
    """Return the classes that the module itself defines."""
    return {name: one for name, one in names.items() if isinstance(one, type) and one.__module__ == module_name}


def allow_start(fd: int) -> None:
    """In the process of the tests: let the program run, now that we are out of its reach."""
    send_message(fd, b"")


def wait_for_start(fd: int) -> None:
    """In the process of the program: wait until the tests are out of its reach."""
    receive_message(fd)


def report_failure(fd: int, *, for_memory: bool = False) -> None:
    """In the process of the program: report that it failed; it has printed why."""
    send_message(fd, PlainValues({}, id, id).encode(["failed", for_memory]))


def serve(
    fd: int, own: Mapping[str, Any], shared: Mapping[str, type], print_error: Callable[[BaseException], None]
) -> None:
    """In the process of the program: let the tests use the names in `own` until they hang up."""
    known: list[Any] = []

    def refer(value: Any) -> int:
        known.append(value)
        return len(known) - 1

    values = PlainValues(shared, refer, known.__getitem__)
    actions: dict[str, Callable[..., Any]] = {
        "name": own.__getitem__,
        "attribute": getattr,
        "call": lambda f, given, named: f(*given, **named),
    }
    send_message(fd, values.encode(["ran", list(own)]))
    with contextlib.suppress(EOFError):
        while True:
            question = receive_message(fd)
            try:
                action, *arguments = values.decode(question)
                send_message(fd, values.encode(["value", actions[action](*arguments)]))
            except BaseException as error:
                print_error(error)
                send_message(fd, values.encode(["raised", type(error).__name__, str(error)]))


class RemoteObject:
    """In the process of the tests: an object in the process of the program."""

    def __init__(self, program: "RemoteProgram", number: int) -> None:
        self._program = program
        self._number = number

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._program.ask("call", self, arguments, named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._program.ask("attribute", self, name)


class RemoteProgram(Mapping[str, Any]):
    """In the process of the tests: the names that the program defined."""

    def __init__(self, fd: int, module_name: str) -> None:
        self._fd = fd
        self._module_name = module_name
        self._shared = dict[str, type]()
        self._values = PlainValues(self._shared, self._refer, lambda number: RemoteObject(self, number))
        self._names: list[str] = self._answer("ran")

    def __getitem__(self, name: str) -> Any:
        return self.ask("name", name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def share_classes(self, names: Mapping[str, Any]) -> None:
        """Let objects of the classes that the tests define pass in both directions."""
        self._shared.update(find_classes(names, self._module_name))

    def ask(self, *question: Any) -> Any:
        """Return the answer of the program's process; raise what was raised there."""
        send_message(self._fd, self._values.encode(list(question)))
        return self._answer("value")

    def _answer(self, expected: str) -> Any:
        try:
            said, *rest = self._values.decode(receive_message(self._fd))
        except (EOFError, ConnectionError):
            raise SystemExit("the program ended itself before it was tested to its end") from None
        if said == expected:
            return rest[0]
        if said == "failed":
            raise MemoryError if rest[0] else SystemExit(1)
        kind = BUILTINS.get(rest[0])
        if isinstance(kind, type) and issubclass(kind, Exception):
            raise kind(rest[1])
        raise RuntimeError(f"{rest[0]}: {rest[1]}")

    def _refer(self, value: Any) -> int:
        if type(value) is not RemoteObject:
            raise TypeError(f"an object of class {type(value).__name__!r} cannot be handed to the program's process")
        return value._number
