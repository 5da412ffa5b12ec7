# SPDX-License-Identifier: Apache-2.0
"""Tasks about customers: add, change, delete, and hand several over at once."""

from resources_servers.workplace_assistant import words
from resources_servers.workplace_assistant.company import PRODUCTS, STATUSES, Draw
from resources_servers.workplace_assistant.tasks.script import (
    CRM,
    DAYS,
    Make,
    Script,
    Unclear,
    draw_colleague,
    draw_customer,
    draw_two_colleagues,
)


def add_customer(draw: Draw, do: Script) -> str:
    customer = draw.pick(("Wanda Ortiz", "Yusuf Demir", "Zoe Hartley", "Xavier Roche"))
    name = draw_colleague(draw)
    status = draw.pick(STATUSES)
    product = draw.pick(PRODUCTS)
    email = f"{customer.replace(' ', '.').lower()}@{draw.pick(words.FIRMS)}.example"
    do(
        f"{CRM}_add_customer",
        customer_name=customer,
        assigned_to_email=do.address(name),
        status=status,
        customer_email=email,
        product_interest=product,
    )
    return (
        f"Add a new customer {customer} with the email address {email}, the status '{status}' and an interest in "
        f"{product.lower()}. {name} looks after this customer"
    )


def change_status(draw: Draw, do: Script) -> str:
    customer = draw_customer(draw, do)
    status = draw.pick(STATUSES)
    if customer["status"] == status:
        raise Unclear
    do(f"{CRM}_update_customer", customer_id=customer["customer_id"], field="status", new_value=status)
    return f"Set the status of the customer {customer['customer_name']} to '{status}'"


def delete_customer(draw: Draw, do: Script) -> str:
    customer = draw_customer(draw, do)
    do(f"{CRM}_delete_customer", customer_id=customer["customer_id"])
    return f"Remove the customer {customer['customer_name']} from our records"


def change_follow_up(draw: Draw, do: Script) -> str:
    customer = draw_customer(draw, do)
    day = draw.pick(DAYS)
    if customer["follow_up_by"] == str(day.date):
        raise Unclear
    do(f"{CRM}_update_customer", customer_id=customer["customer_id"], field="follow_up_by", new_value=str(day.date))
    return f"We have to follow up with {customer['customer_name']} by {day.spoken.removeprefix('on ')}. Note that date"


def hand_over_customers(draw: Draw, do: Script) -> str:
    (name, other), status, product = draw_two_colleagues(draw), draw.pick(STATUSES), draw.pick(PRODUCTS)
    address = do.address(name)
    new_address = do.address(other)
    found = do(f"{CRM}_search_customers", assigned_to_email=address, status=status, product_interest=product)
    for customer in found["customers"]:
        do(
            f"{CRM}_update_customer",
            customer_id=customer["customer_id"],
            field="assigned_to_email",
            new_value=new_address,
        )
    return (
        f"{other} takes over from {name} all customers with the status '{status}' who are interested in "
        f"{product.lower()}. Assign them"
    )


TASKS: tuple[Make, ...] = (
    add_customer,
    change_status,
    delete_customer,
    change_follow_up,
    hand_over_customers,
)
