# SPDX-License-Identifier: Apache-2.0
"""The mailbox: read, search, send, forward, reply and delete. What is sent lands at the end of the table."""

from typing import Any

from resources_servers.workplace_assistant.toolkits.tool import (
    PAGE_SIZE,
    PAGING,
    find_row,
    get_field,
    make_id,
    match_words,
    parse_earliest_day,
    parse_latest_day,
    read_mail_address,
    reads,
    take_page,
    writes,
)
from resources_servers.workplace_assistant.world import NOW, Row, World, remove_row

KEY = "email_id"
_SEARCHED = ("sender/recipient", "subject", "body")
_ID = "8-digit ID of the email."


@reads(email_id=_ID, field="One of 'email_id', 'inbox/outbox', 'sender/recipient', 'subject', 'sent_datetime', 'body'.")
def get_email_information_by_id(world: World, email_id: str, field: str) -> dict[str, str]:
    """Gets one field of an email."""
    return get_field(_email(world, email_id), field)


@reads(
    query="Words to look for.",
    date_min="Earliest day, as 'YYYY-MM-DD', inclusive.",
    date_max="Latest day, as 'YYYY-MM-DD', inclusive.",
    **PAGING,
)
def search_emails(
    world: World,
    query: str = "",
    date_min: str | None = None,
    date_max: str | None = None,
    page: int = 1,
    page_size: int = PAGE_SIZE,
) -> dict[str, Any]:
    """Searches for emails whose subject, body, sender or recipient contain all words of the query, newest first."""
    matches = match_words(query)
    first = parse_earliest_day(date_min, "date_min")
    last = parse_latest_day(date_max, "date_max")
    hits = [
        email
        for email in reversed(world.emails)  # of those sent at the same time, the last one is the newest
        if first <= email["sent_datetime"][:10] <= last and matches(email[column] for column in _SEARCHED)
    ]
    hits.sort(key=lambda email: email["sent_datetime"], reverse=True)
    return take_page(hits, "emails", page, page_size)


@writes(recipient="Email address of the recipient.", subject="Subject line.", body="Text of the email.")
def send_email(world: World, recipient: str, subject: str, body: str) -> str:
    """Sends an email."""
    _send(world, recipient, subject, body)
    return "Email sent successfully."


@writes(email_id=_ID)
def delete_email(world: World, email_id: str) -> str:
    """Deletes an email."""
    world.emails = remove_row(world.emails, find_row(world.emails, KEY, email_id, "Email"))
    return "Email deleted successfully."


@writes(email_id=_ID, recipient="Email address of the recipient.")
def forward_email(world: World, email_id: str, recipient: str) -> str:
    """Forwards an email; its subject begins with 'FW: ' then."""
    email = _email(world, email_id)
    _send(world, recipient, f"FW: {email['subject']}", email["body"])
    return "Email forwarded successfully."


@writes(email_id=_ID, body="Text of the reply.")
def reply_email(world: World, email_id: str, body: str) -> str:
    """Replies to the sender of an email; the subject begins with 'RE: ' then."""
    email = _email(world, email_id)
    _send(world, email["sender/recipient"], f"RE: {email['subject']}", body)
    return "Email replied successfully."


def _email(world: World, email_id: str) -> Row:
    return world.emails[find_row(world.emails, KEY, email_id, "Email")]


def _send(world: World, recipient: str, subject: str, body: str) -> None:
    email = {
        KEY: make_id(world.emails, KEY, digits=0),
        "inbox/outbox": "outbox",
        "sender/recipient": read_mail_address(recipient, "recipient"),
        "subject": subject,
        "sent_datetime": NOW,
        "body": body,
    }
    world.emails = (*world.emails, email)
