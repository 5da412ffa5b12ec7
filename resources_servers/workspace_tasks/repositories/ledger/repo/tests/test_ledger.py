# SPDX-License-Identifier: Apache-2.0
import unittest

from ledger.accounts import Ledger
from ledger.money import parse, show


class LedgerTests(unittest.TestCase):
    def test_amounts(self):
        assert parse("12.34") == 1234
        assert show(1234) == "12.34"

    def test_deposit(self):
        ledger = Ledger()
        ledger.open("amy")
        assert ledger.deposit("amy", "10") == "10.00"

    def test_transfer(self):
        ledger = Ledger()
        ledger.open("amy")
        ledger.open("bob")
        ledger.deposit("amy", "10")
        ledger.transfer("amy", ["bob"], "4")
        assert (ledger.balance("amy"), ledger.balance("bob")) == (600, 400)


if __name__ == "__main__":
    unittest.main()
