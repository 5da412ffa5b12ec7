# SPDX-License-Identifier: Apache-2.0
"""Tasks about email: send, delete, forward, answer, and ask about a task."""

from resources_servers.workplace_assistant.company import LISTS, Draw
from resources_servers.workplace_assistant.tasks.script import PM, Make, Script, Unclear, draw_colleague, require_one

_MESSAGES = (
    ("Team lunch", "We meet at noon in the lobby."),
    ("Travel plans", "Please book your train before Friday."),
    ("Server maintenance", "The servers are down on Saturday from 8 to 10."),
    ("Thank you", "Thanks for your help with the presentation."),
    ("New badge", "Your new badge is at the front desk."),
)
_ANSWERS = ("Thanks, I will take care of it.", "Sounds good to me.", "Can we discuss this next week?", "Approved.")


def send_email(draw: Draw, do: Script) -> str:
    name, (subject, body) = draw_colleague(draw), draw.pick(_MESSAGES)
    do("email_send_email", recipient=do.address(name), subject=subject, body=body)
    asked = ("Send an email to {}", "Please write an email to {}", "I need an email sent to {}")
    return f"{draw.pick(asked).format(name)} with the subject '{subject}' and the body '{body}'"


def delete_last_email(draw: Draw, do: Script) -> str:
    name = draw_colleague(draw)
    do("email_delete_email", email_id=_last_received(do, do.address(name))["email_id"])
    return draw.pick(("Delete the last email that I got from {}", "Get rid of {}'s latest email to me")).format(name)


def forward_email(draw: Draw, do: Script) -> str:
    email = draw.pick(do.world.emails)
    name = draw_colleague(draw)
    newest = do("email_search_emails", query=email["subject"])["emails"][0]
    if newest["subject"] != email["subject"] or name.lower() in newest["sender/recipient"]:
        raise Unclear
    do("email_forward_email", email_id=newest["email_id"], recipient=do.address(name))
    return f"Forward the most recent email with the subject '{email['subject']}' to {name}"


def reply_email(draw: Draw, do: Script) -> str:
    name = draw_colleague(draw)
    body = draw.pick(_ANSWERS)
    do("email_reply_email", email_id=_last_received(do, do.address(name))["email_id"], body=body)
    return f"Reply to the last email that I received from {name} with '{body}'"


def ask_about_task(draw: Draw, do: Script) -> str:
    name = draw_colleague(draw)
    where = draw.pick(LISTS[:3])
    address = do.address(name)
    task = require_one(do(f"{PM}_search_tasks", assigned_to_email=address, list_name=where)["tasks"])
    subject = f"Status of {task['task_name']}"
    body = "How is this going?"
    do("email_send_email", recipient=address, subject=subject, body=body)
    return (
        f"{name} has one task in the list '{where}'. Send {name} an email with the subject 'Status of ' followed by "
        f"the name of that task, and the body '{body}'"
    )


def _last_received(do: Script, address: str) -> dict[str, str]:
    emails = do("email_search_emails", query=address)["emails"]
    received = [one for one in emails if one["inbox/outbox"] == "inbox" and one["sender/recipient"] == address]
    if not received:
        raise Unclear
    return dict(received[0])


TASKS: tuple[Make, ...] = (send_email, delete_last_email, forward_email, reply_email, ask_about_task)
