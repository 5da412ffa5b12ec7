# SPDX-License-Identifier: Apache-2.0
"""Tasks about the calendar: book, cancel, move and resize meetings, and meet whoever looks after a customer."""

from resources_servers.workplace_assistant.company import Draw
from resources_servers.workplace_assistant.tasks.script import (
    DAYS,
    Day,
    Make,
    Script,
    Unclear,
    draw_colleague,
    draw_customer,
)
from resources_servers.workplace_assistant.world import NOW

_MEETINGS = ("Quarterly review", "Onboarding", "Lessons learned", "Offer for Fairwind", "Press release", "Hiring plan")
_MINUTES = (30, 60, 90)


def create_event(draw: Draw, do: Script) -> str:
    name = draw_colleague(draw)
    day = draw.pick(DAYS)
    hour = draw.between(9, 16)
    minutes = draw.pick(_MINUTES)
    title = draw.pick(_MEETINGS)
    do(
        "calendar_create_event",
        event_name=title,
        participant_email=do.address(name),
        event_start=_at(day, hour),
        duration=str(minutes),
    )
    asked = ("Create a {m}-minute event called '{t}' with {n}", "Book {m} minutes with {n} for '{t}'")
    return f"{draw.pick(asked).format(m=minutes, t=title, n=name)} {day.spoken} at {_spoken(hour)}"


def cancel_next_event(draw: Draw, do: Script) -> str:
    name = draw_colleague(draw)
    do("calendar_delete_event", event_id=_next_event(do, name)["event_id"])
    return draw.pick(("Cancel my next meeting with {}", "Delete the next event with {} from my calendar")).format(name)


def move_next_event(draw: Draw, do: Script) -> str:
    name = draw_colleague(draw)
    day = draw.pick(DAYS)
    hour = draw.between(9, 15)
    event = _next_event(do, name)
    do("calendar_update_event", event_id=event["event_id"], field="event_start", new_value=_at(day, hour))
    return f"Move my next meeting with {name}: it should begin {day.spoken} at {_spoken(hour)} instead"


def change_duration(draw: Draw, do: Script) -> str:
    name = draw_colleague(draw)
    minutes = str(draw.pick((45, *_MINUTES)))
    event = _next_event(do, name)
    if event["duration"] == minutes:
        raise Unclear
    do("calendar_update_event", event_id=event["event_id"], field="duration", new_value=minutes)
    return f"Make my next meeting with {name} {minutes} minutes long"


def meet_account_manager(draw: Draw, do: Script) -> str:
    customer = draw_customer(draw, do)
    do(
        "calendar_create_event",
        event_name=f"Follow-up on {customer['customer_name']}",
        participant_email=customer["assigned_to_email"],
        event_start=f"{customer['follow_up_by']} 09:00:00",
        duration="30",
    )
    return (
        f"Book a 30-minute event called 'Follow-up on {customer['customer_name']}' with the colleague who looks after "
        "this customer. It should begin at 9am on the day by which the customer expects the follow-up"
    )


def _next_event(do: Script, name: str) -> dict[str, str]:
    return dict(do("calendar_search_events", query=do.address(name), time_min=NOW)["events"][0])


def _at(day: Day, hour: int) -> str:
    return f"{day.date} {hour:02d}:00:00"


def _spoken(hour: int) -> str:
    return f"{hour}am" if hour < 12 else "noon" if hour == 12 else f"{hour - 12}pm"


TASKS: tuple[Make, ...] = (create_event, cancel_next_event, move_next_event, change_duration, meet_account_manager)
