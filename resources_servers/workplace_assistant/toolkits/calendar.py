# SPDX-License-Identifier: Apache-2.0
"""The calendar: look at events, search, create, change and delete them. Whether events overlap is not its concern."""

from typing import Any

from resources_servers.workplace_assistant.toolkits.tool import (
    PAGE_SIZE,
    PAGING,
    earliest,
    found,
    has_words,
    information,
    latest,
    mail_address,
    paged,
    reads,
    writable,
    writes,
)
from resources_servers.workplace_assistant.world import World, changed, next_id, without

KEY = "event_id"
_SEARCHED = ("event_name", "participant_email")


def get_event_information_by_id(world: World, event_id: str, field: str) -> dict[str, str]:
    """One field of an event."""
    return information(world.events[found(world.events, KEY, event_id, "Event")], field)


def search_events(
    world: World,
    query: str = "",
    time_min: str | None = None,
    time_max: str | None = None,
    page: int = 1,
    page_size: int = PAGE_SIZE,
) -> dict[str, Any]:
    """Events with all words of the query, in the order in which they begin."""
    matches, first, last = has_words(query), earliest(time_min, "time_min"), latest(time_max, "time_max")
    hits = [
        event
        for event in world.events
        if first <= event["event_start"] <= last and matches(event[column] for column in _SEARCHED)
    ]
    hits.sort(key=lambda event: event["event_start"])
    return paged(hits, "events", page, page_size)


def create_event(world: World, event_name: str, participant_email: str, event_start: str, duration: str) -> str:
    """Add an event; its id."""
    event = {
        KEY: next_id(world.events, KEY),
        "event_name": event_name,
        "participant_email": mail_address(participant_email, "participant"),
        "event_start": event_start,
        "duration": duration,
    }
    world.events = (*world.events, event)
    return event[KEY]


def delete_event(world: World, event_id: str) -> str:
    """Delete an event."""
    world.events = without(world.events, found(world.events, KEY, event_id, "Event"))
    return "Event deleted successfully."


def update_event(world: World, event_id: str, field: str, new_value: str) -> str:
    """Change one field of an event."""
    place = found(world.events, KEY, event_id, "Event")
    column = writable(world.events[place], field, KEY)
    value = mail_address(new_value, "participant") if column == "participant_email" else new_value
    world.events = changed(world.events, place, column, value)
    return "Event updated successfully."


_ID = "8-digit ID of the event."
_FIELDS = "'event_name', 'participant_email', 'event_start', 'duration'"
_START = "Start, as 'YYYY-MM-DD HH:MM:SS'."
TOOLS = (
    reads(
        get_event_information_by_id,
        "calendar_get_event_information_by_id",
        "Gets one field of an event.",
        event_id=_ID,
        field=f"One of 'event_id', {_FIELDS}.",
    ),
    reads(
        search_events,
        "calendar_search_events",
        "Searches for events whose name or participant contain all words of the query, in order of their start.",
        query="Words to look for.",
        time_min="Earliest start, as 'YYYY-MM-DD HH:MM:SS', inclusive.",
        time_max="Latest start, as 'YYYY-MM-DD HH:MM:SS', inclusive.",
        **PAGING,
    ),
    writes(
        create_event,
        "calendar_create_event",
        "Creates an event and returns its ID.",
        event_name="Name of the event.",
        participant_email="Email address of the participant.",
        event_start=_START,
        duration="Minutes that it takes, as in '30'.",
    ),
    writes(delete_event, "calendar_delete_event", "Deletes an event.", event_id=_ID),
    writes(
        update_event,
        "calendar_update_event",
        "Changes one field of an event.",
        event_id=_ID,
        field=f"One of {_FIELDS}.",
        new_value="What the field is to be.",
    ),
)
