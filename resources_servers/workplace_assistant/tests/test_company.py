# SPDX-License-Identifier: Apache-2.0
"""The company is the same for everyone, and of the size and shape that the tools promise."""

import hashlib
import json
from itertools import pairwise

import pytest

from resources_servers.workplace_assistant.company import BOARDS, LISTS, PRODUCTS, SOURCES, STATUSES, company
from resources_servers.workplace_assistant.world import NOW

DIGEST = "dd70e9ba6d263b16"
TABLES = {
    "emails": (500, "email_id, inbox/outbox, sender/recipient, subject, sent_datetime, body"),
    "events": (300, "event_id, event_name, participant_email, event_start, duration"),
    "visits": (
        1000,
        "date_of_visit, visitor_id, page_views, session_duration_seconds, traffic_source, user_engaged",
    ),
    "tasks": (300, "task_id, task_name, assigned_to_email, list_name, due_date, board"),
    "customers": (
        200,
        "customer_id, assigned_to_email, customer_name, customer_email, customer_phone, last_contact_date, "
        "product_interest, status, follow_up_by, notes",
    ),
}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_its_size_and_columns_and_holds_texts(table):
    rows, (size, columns) = getattr(company(), table), TABLES[table]
    assert len(rows) == size
    assert {", ".join(row) for row in rows} == {columns}
    assert all(isinstance(value, str) for row in rows for value in row.values())


@pytest.mark.parametrize("table", ["emails", "events", "tasks", "customers"])
def test_ids_have_eight_digits_and_are_unique(table):
    ids = [next(iter(row.values())) for row in getattr(company(), table)]
    assert len(set(ids)) == len(ids)
    assert all(len(one) == 8 and one.isdigit() for one in ids)


def test_visitors_have_eight_digits_and_some_come_again():
    ids = [visit["visitor_id"] for visit in company().visits]
    assert all(len(one) == 8 and one.isdigit() for one in ids)
    assert len(set(ids)) < len(ids)


def test_values_are_of_their_sets():
    assert len(company().addresses) == 20
    assert {task["list_name"] for task in company().tasks} == set(LISTS)
    assert {task["board"] for task in company().tasks} == set(BOARDS)
    assert {one["status"] for one in company().customers} == set(STATUSES)
    assert {one["product_interest"] for one in company().customers} == set(PRODUCTS)
    assert {visit["traffic_source"] for visit in company().visits} == set(SOURCES)


def test_meetings_are_within_working_hours_and_do_not_overlap():
    spans = sorted(_span(event) for event in company().events)
    assert all(start >= 9 * 60 and end <= 18 * 60 for _, start, end in spans)
    assert all(before[0] < after[0] or before[2] <= after[1] for before, after in pairwise(spans))


def _span(event):
    day, clock = event["event_start"].split(" ")
    hours, minutes, _ = map(int, clock.split(":"))
    start = hours * 60 + minutes
    return day, start, start + int(event["duration"])


def test_nothing_was_sent_or_visited_in_the_future():
    assert max(email["sent_datetime"] for email in company().emails) < NOW
    assert max(visit["date_of_visit"] for visit in company().visits) < NOW


def test_the_tables_are_the_same_everywhere():
    tables = {name: getattr(company(), name) for name in ("addresses", *TABLES)}
    digest = hashlib.sha256(json.dumps(tables).encode()).hexdigest()[:16]
    assert digest == DIGEST, "the tables changed: solutions in data that was made before do not fit them any more"
