# SPDX-License-Identifier: Apache-2.0
import unittest

from orderflow.machine import Machine
from orderflow.orders import Order


class OrderTests(unittest.TestCase):
    def test_an_order_is_paid(self):
        order = Order({"book": 1000})
        assert order.pay(1000) == "paid"

    def test_a_machine_moves(self):
        machine = Machine({"off": {"press": "on"}, "on": {"press": "off"}}, "off")
        assert machine.send("press") == "on"

    def test_an_order_is_new_at_first(self):
        assert Order({"book": 1}).history() == ["new"]


if __name__ == "__main__":
    unittest.main()
