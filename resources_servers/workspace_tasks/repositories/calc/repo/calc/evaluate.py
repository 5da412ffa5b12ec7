# SPDX-License-Identifier: Apache-2.0
"""Computes the value of an expression."""

from calc.lexer import split

FUNCTIONS = {"min": min, "max": max, "abs": abs}


def evaluate(text: str, values: dict[str, float] | None = None) -> float:
    """Return the value of an expression, with `values` for its names."""
    reader = _Reader(split(text), values or {})
    result = reader.read_sum()
    if reader.next_part() is not None:
        raise ValueError(f"{reader.next_part()!r} is not expected there")
    return result


class _Reader:
    def __init__(self, parts: list[str], values: dict[str, float]) -> None:
        self.parts, self.values, self.position = parts, values, 0

    def next_part(self) -> str | None:
        return self.parts[self.position] if self.position < len(self.parts) else None

    def take(self, *wanted: str) -> str | None:
        part = self.next_part()
        if part is None or (wanted and part not in wanted):
            return None
        self.position += 1
        return part

    def read_sum(self) -> float:
        result = self.read_product()
        while sign := self.take("+", "-"):
            other = self.read_product()
            result = result + other if sign == "+" else result - other
        return result

    def read_product(self) -> float:
        result = self.read_signed()
        while sign := self.take("*", "/"):
            other = self.read_signed()
            result = result * other if sign == "*" else result / other
        return result

    def read_signed(self) -> float:
        if self.take("-"):
            return -self.read_signed()
        return self.read_power()

    def read_power(self) -> float:
        base = self.read_value()
        return base ** self.read_signed() if self.take("^") else base

    def read_value(self) -> float:
        part = self.take()
        if part is None:
            raise ValueError("the expression ends too early")
        if part == "(":
            result = self.read_sum()
            self.expect(")")
            return result
        if part in FUNCTIONS and self.take("("):
            return FUNCTIONS[part](*self.read_arguments())
        if part[0].isalpha() or part[0] == "_":
            if part not in self.values:
                raise LookupError(f"{part!r} has no value")
            return self.values[part]
        return float(part)

    def read_arguments(self) -> list[float]:
        arguments = [self.read_sum()]
        while self.take(","):
            arguments.append(self.read_sum())
        self.expect(")")
        return arguments

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            raise ValueError(f"{sign!r} is missing")
