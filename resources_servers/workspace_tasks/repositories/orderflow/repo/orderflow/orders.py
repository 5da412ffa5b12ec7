# SPDX-License-Identifier: Apache-2.0
"""Orders."""

from orderflow.machine import Machine

TABLE = {
    "new": {"pay": "paid", "cancel": "cancelled"},
    "paid": {"ship": "shipped", "cancel": "refunded"},
    "shipped": {"deliver": "delivered", "lose": "refunded"},
    "delivered": {"return": "refunded"},
    "refunded": {},
    "cancelled": {},
}


class Order:
    """An order: amounts are in cents."""

    def __init__(self, prices: dict[str, int]) -> None:
        self.prices = dict(prices)
        self.paid = self.refunded = 0
        self._machine = Machine(TABLE, "new")

    def total(self) -> int:
        """Return what the order costs."""
        return sum(self.prices.values())

    def state(self) -> str:
        """Return the state of the order."""
        return self._machine.state

    def history(self) -> list[str]:
        """Return all states so far."""
        return list(self._machine.history)

    def add(self, name: str, price: int) -> None:
        """Put another thing into an order that nobody has paid yet."""
        if self.state() != "new":
            raise ValueError(f"nothing can be added to an order that is {self.state()}")
        self.prices[name] = self.prices.get(name, 0) + price

    def pay(self, cents: int) -> str:
        """Take a payment; the order is paid as soon as all of it is. Too much is refused."""
        if not self._machine.can("pay"):
            raise ValueError(f"an order that is {self.state()} cannot be paid")
        if self.paid + cents > self.total():
            raise ValueError(f"{self.paid + cents} cents are more than the order costs")
        self.paid += cents
        return self._machine.send("pay") if self.paid == self.total() else self.state()

    def send(self, event: str) -> str:
        """Follow any other event; what was paid is given back where an order ends as refunded or cancelled."""
        state = self._machine.send(event)
        if state in ("refunded", "cancelled"):
            self.refunded, self.paid = self.refunded + self.paid, 0
        return state
