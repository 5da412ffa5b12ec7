# SPDX-License-Identifier: Apache-2.0
"""Amounts as people write them."""


def parse(text: str) -> int:
    """Return the cents of an amount such as `1,234.50`, `-0.05` or `7`."""
    digits = text.strip().replace(",", "")
    negative = digits.startswith("-")
    whole, point, cents = digits.removeprefix("-").partition(".")
    if not whole.isdigit() or (point and not (cents.isdigit() and len(cents) <= 2)):
        raise ValueError(f"{text!r} is not an amount")
    amount = int(whole) * 100 + int(cents.ljust(2, "0") if point else "0")
    return -amount if negative else amount


def show(cents: int) -> str:
    """Return an amount as people write it: 123450 is `1,234.50`."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100:,}.{abs(cents) % 100:02}"


def split(cents: int, shares: int) -> list[int]:
    """Return an amount in `shares` parts that add up to it; parts differ by one cent at most, larger ones first."""
    if shares < 1:
        raise ValueError(f"an amount cannot be split into {shares} parts")
    each, more = divmod(abs(cents), shares)
    parts = [each + (number < more) for number in range(shares)]
    return parts if cents >= 0 else [-part for part in parts]
