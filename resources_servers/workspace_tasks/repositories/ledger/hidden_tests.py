# SPDX-License-Identifier: Apache-2.0
from checks import error_of
from ledger.accounts import Ledger
from ledger.money import parse, show, split


def opened(**deposits):
    ledger = Ledger()
    for name, amount in deposits.items():
        ledger.open(name)
        if amount:
            ledger.deposit(name, amount)
    return ledger


def test_one_digit_after_the_point_means_tens_of_cents():
    assert parse("1.5") == 150
    assert parse("1.05") == 105
    assert parse("7") == 700


def test_negative_amounts():
    assert parse("-0.05") == -5
    assert parse("-1,234.50") == -123450


def test_what_is_no_amount_is_refused():
    assert [error_of(parse, text) for text in ("", "1.234", "1.", ".5", "x", "--1")] == ["ValueError"] * 6


def test_amounts_are_shown_with_two_digits():
    assert [show(cents) for cents in (0, 5, -5, 123450, -100)] == ["0.00", "0.05", "-0.05", "1,234.50", "-1.00"]
    assert show(123456789) == "1,234,567.89"


def test_parts_add_up():
    assert split(1000, 3) == [334, 333, 333]
    assert split(2, 3) == [1, 1, 0]
    assert split(-1000, 3) == [-334, -333, -333]
    assert error_of(split, 1, 0) == "ValueError"


def test_only_what_is_there_can_be_moved():
    ledger = opened(amy="10", bob="")
    assert error_of(ledger.transfer, "amy", ["bob"], "10.01") == "ValueError"
    ledger.transfer("amy", ["bob"], "10")
    assert ledger.balance("amy") == 0


def test_a_limit_below_zero_allows_more():
    ledger = opened(bob="")
    ledger.open("amy", "-5")
    ledger.transfer("amy", ["bob"], "5")
    assert ledger.balance("amy") == -500
    assert error_of(ledger.transfer, "amy", ["bob"], "0.01") == "ValueError"


def test_a_limit_above_zero_keeps_something_back():
    ledger = opened(bob="")
    ledger.open("amy", "3")
    ledger.deposit("amy", "10")
    assert error_of(ledger.transfer, "amy", ["bob"], "8") == "ValueError"


def test_a_transfer_to_several_loses_no_cent():
    ledger = opened(amy="10", bob="", eve="", joe="")
    ledger.transfer("amy", ["bob", "eve", "joe"], "10")
    assert [ledger.balance(name) for name in ("amy", "bob", "eve", "joe")] == [0, 334, 333, 333]


def test_a_transfer_to_an_unknown_account_moves_nothing():
    ledger = opened(amy="10", bob="")
    assert error_of(ledger.transfer, "amy", ["bob", "nobody"], "4") == "LookupError"
    assert (ledger.balance("amy"), ledger.balance("bob")) == (1000, 0)


def test_nothing_and_less_cannot_be_moved():
    ledger = opened(amy="10", bob="")
    assert error_of(ledger.transfer, "amy", ["bob"], "-1") == "ValueError"
    assert error_of(ledger.transfer, "amy", [], "1") == "ValueError"
    assert error_of(ledger.deposit, "amy", "0") == "ValueError"


def test_accounts_are_opened_once():
    ledger = opened(amy="10")
    assert error_of(ledger.open, "amy") == "ValueError"
    assert error_of(ledger.deposit, "bob", "1") == "LookupError"


def test_a_statement_shows_only_its_own_account():
    ledger = opened(amy="10", bob="1")
    ledger.transfer("amy", ["bob"], "2.50")
    assert ledger.statement("amy") == ["10.00 -> 10.00", "-2.50 -> 7.50"]
    assert ledger.statement("bob") == ["1.00 -> 1.00", "2.50 -> 3.50"]
