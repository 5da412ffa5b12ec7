# SPDX-License-Identifier: Apache-2.0
"""The customers: search, add, change and delete them."""

from typing import Any

from resources_servers.workplace_assistant.company import PRODUCTS, STATUSES
from resources_servers.workplace_assistant.toolkits.tool import (
    PAGE_SIZE,
    PAGING,
    ToolError,
    find_row,
    make_id,
    parse_earliest_day,
    parse_latest_day,
    reads,
    require_choice,
    take_page,
    writes,
)
from resources_servers.workplace_assistant.world import World, change_row, remove_row

KEY = "customer_id"
_DATED = ("last_contact_date", "follow_up_by")
_ID = "8-digit ID of the customer."
_STATUS = f"One of {', '.join(map(repr, STATUSES))}."
_PRODUCT = f"One of {', '.join(map(repr, PRODUCTS))}."
_ASSIGNEE = "Email address of the colleague who looks after the customer."
_FIELDS = (
    "'assigned_to_email', 'customer_name', 'customer_email', 'customer_phone', 'last_contact_date', "
    "'product_interest', 'status', 'follow_up_by', 'notes'"
)


@reads(
    customer_name="Name of the customer, or a part of it.",
    customer_email="Email address of the customer, or a part of it.",
    product_interest=_PRODUCT,
    status=_STATUS,
    assigned_to_email=_ASSIGNEE,
    last_contact_date_min="Earliest day of the last contact, as 'YYYY-MM-DD', inclusive.",
    last_contact_date_max="Latest day of the last contact, as 'YYYY-MM-DD', inclusive.",
    follow_up_by_min="Earliest day to follow up by, as 'YYYY-MM-DD', inclusive.",
    follow_up_by_max="Latest day to follow up by, as 'YYYY-MM-DD', inclusive.",
    **PAGING,
)
def search_customers(
    world: World,
    customer_name: str | None = None,
    customer_email: str | None = None,
    product_interest: str | None = None,
    status: str | None = None,
    assigned_to_email: str | None = None,
    last_contact_date_min: str | None = None,
    last_contact_date_max: str | None = None,
    follow_up_by_min: str | None = None,
    follow_up_by_max: str | None = None,
    page: int = 1,
    page_size: int = PAGE_SIZE,
) -> dict[str, Any]:
    """Searches for customers whose fields contain what is given; at least one field is needed."""
    texts = {
        "customer_name": customer_name,
        "customer_email": customer_email,
        "product_interest": product_interest,
        "status": status,
        "assigned_to_email": assigned_to_email,
    }
    bounds = {
        "last_contact_date": (last_contact_date_min, last_contact_date_max),
        "follow_up_by": (follow_up_by_min, follow_up_by_max),
    }
    wanted = {column: value.lower() for column, value in texts.items() if value}
    spans = {
        column: (parse_earliest_day(low, f"{column}_min"), parse_latest_day(high, f"{column}_max"))
        for column, (low, high) in bounds.items()
        if low or high
    }
    if not wanted and not spans:
        names = (*texts, *(f"{column}_{end}" for column in _DATED for end in ("min", "max")))
        raise ToolError(f"No search parameters provided. Please provide at least one of: {', '.join(names)}.")
    hits = [
        customer
        for customer in world.customers
        if all(value in customer[column].lower() for column, value in wanted.items())
        and all(low <= customer[column] <= high for column, (low, high) in spans.items())
    ]
    return take_page(hits, "customers", page, page_size)


@writes(customer_id=_ID, field=f"One of {_FIELDS}.", new_value="What the field is to be.")
def update_customer(world: World, customer_id: str, field: str, new_value: str) -> str:
    """Changes one field of a customer."""
    place = find_row(world.customers, KEY, customer_id, "Customer")
    require_choice(field, list(world.customers[place]), "Field")
    if field in ("assigned_to_email", "customer_email"):
        new_value = new_value.lower()
    elif field == "status":
        require_choice(new_value, STATUSES, "Status")
    elif field == "product_interest":
        require_choice(new_value, PRODUCTS, "Product interest")
    world.customers = change_row(world.customers, place, field, new_value)
    return "Customer updated successfully."


@writes(
    customer_name="Name of the customer.",
    assigned_to_email=_ASSIGNEE,
    status=_STATUS,
    customer_email="Email address of the customer.",
    customer_phone="Phone number of the customer.",
    last_contact_date="Day of the last contact, as 'YYYY-MM-DD'.",
    product_interest=_PRODUCT,
    notes="Notes about the customer.",
    follow_up_by="Day to follow up by, as 'YYYY-MM-DD'.",
)
def add_customer(
    world: World,
    customer_name: str,
    assigned_to_email: str,
    status: str,
    customer_email: str = "",
    customer_phone: str = "",
    last_contact_date: str = "",
    product_interest: str = "",
    notes: str = "",
    follow_up_by: str = "",
) -> str:
    """Adds a customer and returns the ID."""
    customer = {
        KEY: make_id(world.customers, KEY),
        "assigned_to_email": assigned_to_email.lower(),
        "customer_name": customer_name,
        "customer_email": customer_email,
        "customer_phone": customer_phone,
        "last_contact_date": last_contact_date,
        "product_interest": product_interest,
        "status": status,
        "follow_up_by": follow_up_by,
        "notes": notes,
    }
    world.customers = (*world.customers, customer)
    return customer[KEY]


@writes(customer_id=_ID)
def delete_customer(world: World, customer_id: str) -> str:
    """Deletes a customer."""
    world.customers = remove_row(world.customers, find_row(world.customers, KEY, customer_id, "Customer"))
    return "Customer deleted successfully."
