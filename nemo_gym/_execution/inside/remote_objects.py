# SPDX-License-Identifier: Apache-2.0
"""Use what a program defines from another process, so that nothing of the program runs where its answers are compared.

Plain values pass as copies, and so do objects of classes that the task gives to both sides. Of anything else the tests
get a `RemoteObject`, which they can call, ask for attributes and hand back; it equals nothing but itself.
"""

import contextlib
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nemo_gym._execution.inside.plain_values import PlainValues
from nemo_gym._execution.inside.private_copies import BUILTINS

LENGTH = struct.Struct(">Q")
MAX_MESSAGE_BYTES = 1 << 30


def classes_in(names: Mapping[str, Any], module_name: str) -> dict[str, type]:
    """Return the classes that the module has defined itself."""
    return {name: one for name, one in names.items() if isinstance(one, type) and one.__module__ == module_name}


def let_start(fd: int) -> None:
    """In the process of the tests: say that it is out of reach, so that the program may run."""
    _send(fd, b"")


def wait_for_start(fd: int) -> None:
    """In the process of the program: wait until the tests are out of its reach."""
    _receive(fd)


def say_failed(fd: int, *, for_memory: bool = False) -> None:
    """In the process of the program: say that it failed, and has said why."""
    _send(fd, PlainValues({}, id, id).encode(["failed", for_memory]))


def serve(
    fd: int, own: Mapping[str, Any], shared: Mapping[str, type], print_error: Callable[[BaseException], None]
) -> None:
    """In the process of the program: let the other one use the names in `own`, until it hangs up."""
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
    _send(fd, values.encode(["ran", list(own)]))
    with contextlib.suppress(EOFError):
        while True:
            question = _receive(fd)
            try:
                action, *arguments = values.decode(question)
                _send(fd, values.encode(["value", actions[action](*arguments)]))
            except BaseException as error:
                print_error(error)
                _send(fd, values.encode(["raised", type(error).__name__, str(error)]))


class RemoteObject:
    """In the process of the tests: something in that of the program."""

    def __init__(self, program: "RemoteProgram", number: int) -> None:
        self._program, self._number = program, number

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._program.ask("call", self, arguments, named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._program.ask("attribute", self, name)


class RemoteProgram(Mapping[str, Any]):
    """In the process of the tests: the names that the program defined."""

    def __init__(self, fd: int, module_name: str) -> None:
        self._fd, self._module_name, self._shared = fd, module_name, dict[str, type]()
        self._values = PlainValues(self._shared, self._refer, lambda number: RemoteObject(self, number))
        self._names: list[str] = self._answer("ran")

    def __getitem__(self, name: str) -> Any:
        return self.ask("name", name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def share_classes(self, names: Mapping[str, Any]) -> None:
        """Let objects of the classes that the tests have defined pass in both directions."""
        self._shared.update(classes_in(names, self._module_name))

    def ask(self, *question: Any) -> Any:
        """Return what the program's process answers; raise what was raised there."""
        _send(self._fd, self._values.encode(list(question)))
        return self._answer("value")

    def _answer(self, expected: str) -> Any:
        try:
            said, *rest = self._values.decode(_receive(self._fd))
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


def _send(fd: int, data: bytes) -> None:
    data = LENGTH.pack(len(data)) + data
    while data:
        data = data[os.write(fd, data) :]


def _receive(fd: int) -> bytes:
    (size,) = LENGTH.unpack(_exactly(fd, LENGTH.size))
    if size > MAX_MESSAGE_BYTES:
        raise EOFError  # what comes is no message, and what follows cannot be told apart
    return _exactly(fd, size)


def _exactly(fd: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = os.read(fd, min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)
