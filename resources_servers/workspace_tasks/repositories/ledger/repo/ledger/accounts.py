# SPDX-License-Identifier: Apache-2.0
"""Accounts, and money that moves between them."""

from ledger.money import parse, show, split


class Ledger:
    """Accounts by name; every movement is kept. An account cannot fall below its limit, by default 0."""

    def __init__(self) -> None:
        self.limits: dict[str, int] = {}
        self.entries: list[tuple[str, int]] = []

    def open(self, name: str, limit: str = "0") -> None:
        """Open an account."""
        if name in self.limits:
            raise ValueError(f"there is an account {name!r} already")
        self.limits[name] = parse(limit)

    def balance(self, name: str) -> int:
        """Return the cents in an account."""
        if name not in self.limits:
            raise LookupError(f"there is no account {name!r}")
        return sum(cents for account, cents in self.entries if account == name)

    def deposit(self, name: str, amount: str) -> str:
        """Put money into an account and return its new balance."""
        cents = parse(amount)
        if cents <= 0:
            raise ValueError(f"{amount!r} cannot be put into an account")
        self.balance(name)
        self.entries.append((name, cents))
        return show(self.balance(name))

    def transfer(self, source: str, targets: list[str], amount: str) -> None:
        """Move money, in equal parts, to several accounts: all of it or nothing."""
        cents = parse(amount)
        if cents <= 0 or not targets:
            raise ValueError(f"{amount!r} cannot be moved to {len(targets)} accounts")
        for name in targets:
            self.balance(name)
        if self.balance(source) - cents < self.limits[source]:
            raise ValueError(f"{source!r} has only {show(self.balance(source))}")
        parts = zip(targets, split(cents, len(targets)), strict=True)
        self.entries += [(source, -cents), *parts]

    def statement(self, name: str) -> list[str]:
        """Return the movements of an account with the balance after each."""
        self.balance(name)
        lines, total = [], 0
        for account, cents in self.entries:
            if account == name:
                total += cents
                lines.append(f"{show(cents)} -> {show(total)}")
        return lines
