# SPDX-License-Identifier: Apache-2.0
"""The mailbox: read, search, send, forward, reply and delete. What is sent lands at the end of the table."""

from typing import Any

from resources_servers.workplace_assistant.toolkits.tool import (
    PAGE_SIZE,
    PAGING,
    earliest_day,
    found,
    has_words,
    information,
    latest_day,
    mail_address,
    paged,
    reads,
    writes,
)
from resources_servers.workplace_assistant.world import NOW, Row, World, next_id, without

KEY = "email_id"
_SEARCHED = ("sender/recipient", "subject", "body")


def get_email_information_by_id(world: World, email_id: str, field: str) -> dict[str, str]:
    """One field of an email."""
    return information(_email(world, email_id), field)


def search_emails(
    world: World,
    query: str = "",
    date_min: str | None = None,
    date_max: str | None = None,
    page: int = 1,
    page_size: int = PAGE_SIZE,
) -> dict[str, Any]:
    """Emails with all words of the query, newest first."""
    matches, first, last = has_words(query), earliest_day(date_min, "date_min"), latest_day(date_max, "date_max")
    hits = [
        email
        for email in reversed(world.emails)  # of those sent at the same time, the last one is the newest
        if first <= email["sent_datetime"][:10] <= last and matches(email[column] for column in _SEARCHED)
    ]
    hits.sort(key=lambda email: email["sent_datetime"], reverse=True)
    return paged(hits, "emails", page, page_size)


def send_email(world: World, recipient: str, subject: str, body: str) -> str:
    """Send an email."""
    _send(world, recipient, subject, body)
    return "Email sent successfully."


def delete_email(world: World, email_id: str) -> str:
    """Delete an email."""
    world.emails = without(world.emails, found(world.emails, KEY, email_id, "Email"))
    return "Email deleted successfully."


def forward_email(world: World, email_id: str, recipient: str) -> str:
    """Send an email on to someone."""
    email = _email(world, email_id)
    _send(world, recipient, f"FW: {email['subject']}", email["body"])
    return "Email forwarded successfully."


def reply_email(world: World, email_id: str, body: str) -> str:
    """Answer an email."""
    email = _email(world, email_id)
    _send(world, email["sender/recipient"], f"RE: {email['subject']}", body)
    return "Email replied successfully."


def _email(world: World, email_id: str) -> Row:
    return world.emails[found(world.emails, KEY, email_id, "Email")]


def _send(world: World, recipient: str, subject: str, body: str) -> None:
    email = {
        KEY: next_id(world.emails, KEY),
        "inbox/outbox": "outbox",
        "sender/recipient": mail_address(recipient, "recipient"),
        "subject": subject,
        "sent_datetime": NOW,
        "body": body,
    }
    world.emails = (*world.emails, email)


_ID = "8-digit ID of the email."
TOOLS = (
    reads(
        get_email_information_by_id,
        "email_get_email_information_by_id",
        "Gets one field of an email.",
        email_id=_ID,
        field="One of 'email_id', 'inbox/outbox', 'sender/recipient', 'subject', 'sent_datetime', 'body'.",
    ),
    reads(
        search_emails,
        "email_search_emails",
        "Searches for emails whose subject, body, sender or recipient contain all words of the query, newest first.",
        query="Words to look for.",
        date_min="Earliest day, as 'YYYY-MM-DD', inclusive.",
        date_max="Latest day, as 'YYYY-MM-DD', inclusive.",
        **PAGING,
    ),
    writes(
        send_email,
        "email_send_email",
        "Sends an email.",
        recipient="Email address of the recipient.",
        subject="Subject line.",
        body="Text of the email.",
    ),
    writes(delete_email, "email_delete_email", "Deletes an email.", email_id=_ID),
    writes(
        forward_email,
        "email_forward_email",
        "Forwards an email; its subject begins with 'FW: ' then.",
        email_id=_ID,
        recipient="Email address of the recipient.",
    ),
    writes(
        reply_email,
        "email_reply_email",
        "Replies to the sender of an email; the subject begins with 'RE: ' then.",
        email_id=_ID,
        body="Text of the reply.",
    ),
)
