# SPDX-License-Identifier: Apache-2.0
from checks import error_of
from orderflow.machine import Machine
from orderflow.orders import Order


def test_states_that_are_missing_are_refused():
    assert error_of(Machine, {"a": {"go": "b"}}, "a") == "ValueError"
    assert error_of(Machine, {"a": {}}, "z") == "ValueError"


def test_any_other_event():
    machine = Machine({"a": {"go": "b", "*": "a"}, "b": {}}, "a")
    assert machine.send("whatever") == "a"
    assert machine.send("go") == "b"
    assert machine.is_final()


def test_a_named_event_goes_before_any_other():
    assert Machine({"a": {"*": "c", "go": "b"}, "b": {}, "c": {}}, "a").send("go") == "b"


def test_history_holds_every_state():
    machine = Machine({"a": {"go": "b"}, "b": {"back": "a"}}, "a")
    for event in ("go", "back", "go"):
        machine.send(event)
    assert machine.history == ["a", "b", "a", "b"]


def test_a_refused_event_changes_nothing():
    machine = Machine({"a": {"go": "b"}, "b": {}}, "a")
    assert error_of(machine.send, "fly") == "ValueError"
    assert machine.state == "a"
    assert machine.history == ["a"]


def test_an_order_can_be_paid_in_parts():
    order = Order({"a": 300, "b": 700})
    assert order.pay(400) == "new"
    assert order.pay(600) == "paid"
    assert order.history() == ["new", "paid"]


def test_too_much_is_refused():
    order = Order({"a": 300})
    order.pay(100)
    assert error_of(order.pay, 201) == "ValueError"
    assert order.paid == 100


def test_adding_the_same_thing_twice_costs_twice():
    order = Order({"a": 300})
    order.add("a", 300)
    order.add("b", 5)
    assert order.total() == 605


def test_nothing_is_added_to_a_paid_order():
    order = Order({"a": 300})
    order.pay(300)
    assert error_of(order.add, "b", 1) == "ValueError"
    assert error_of(order.pay, 0) == "ValueError"


def test_a_part_payment_is_given_back_on_cancelling():
    order = Order({"a": 300})
    order.pay(100)
    assert order.send("cancel") == "cancelled"
    assert (order.paid, order.refunded) == (0, 100)


def test_a_paid_order_is_refunded_on_cancelling():
    order = Order({"a": 300})
    order.pay(300)
    assert order.send("cancel") == "refunded"
    assert (order.paid, order.refunded) == (0, 300)


def test_a_delivered_order_can_only_be_returned():
    order = Order({"a": 300})
    order.pay(300)
    for event in ("ship", "deliver"):
        order.send(event)
    assert error_of(order.send, "cancel") == "ValueError"
    assert order.send("return") == "refunded"
    assert order.refunded == 300


def test_orders_do_not_share_their_prices():
    prices = {"a": 1}
    one = Order(prices)
    one.add("b", 2)
    assert Order(prices).total() == 1
