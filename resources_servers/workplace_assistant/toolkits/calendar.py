# SPDX-License-Identifier: Apache-2.0
"""The calendar: look at events, search, create, change and delete them. Whether events overlap is not its concern."""

from typing import Any

from resources_servers.workplace_assistant.toolkits.tool import (
    PAGE_SIZE,
    PAGING,
    find_row,
    get_field,
    make_id,
    match_words,
    parse_earliest,
    parse_latest,
    reads,
    require_choice,
    require_minutes,
    require_moment,
    take_page,
    writes,
)
from resources_servers.workplace_assistant.world import World, change_row, remove_row

KEY = "event_id"
_SEARCHED = ("event_name", "participant_email")
_ID = "8-digit ID of the event."
_FIELDS = "'event_name', 'participant_email', 'event_start', 'duration'"
_START = "Start, as 'YYYY-MM-DD HH:MM:SS'."


@reads(event_id=_ID, field=f"One of 'event_id', {_FIELDS}.")
def get_event_information_by_id(world: World, event_id: str, field: str) -> dict[str, str]:
    """Gets one field of an event."""
    return get_field(world.events[find_row(world.events, KEY, event_id, "Event")], field)


@reads(
    query="Words to look for.",
    time_min="Earliest start, as 'YYYY-MM-DD HH:MM:SS', inclusive.",
    time_max="Latest start, as 'YYYY-MM-DD HH:MM:SS', inclusive.",
    **PAGING,
)
def search_events(
    world: World,
    query: str = "",
    time_min: str | None = None,
    time_max: str | None = None,
    page: int = 1,
    page_size: int = PAGE_SIZE,
) -> dict[str, Any]:
    """Searches for events whose name or participant contain all words of the query, in order of their start."""
    matches = match_words(query)
    first = parse_earliest(time_min, "time_min")
    last = parse_latest(time_max, "time_max")
    hits = [
        event
        for event in world.events
        if first <= event["event_start"] <= last and matches(event[column] for column in _SEARCHED)
    ]
    hits.sort(key=lambda event: event["event_start"])
    return take_page(hits, "events", page, page_size)


@writes(
    event_name="Name of the event.",
    participant_email="Email address of the participant.",
    event_start=_START,
    duration="Minutes that it takes, as in '30'.",
)
def create_event(world: World, event_name: str, participant_email: str, event_start: str, duration: str) -> str:
    """Creates an event and returns its ID."""
    event = {
        KEY: make_id(world.events, KEY),
        "event_name": event_name,
        "participant_email": participant_email.lower(),
        "event_start": require_moment(event_start),
        "duration": require_minutes(duration),
    }
    world.events = (*world.events, event)
    return event[KEY]


@writes(event_id=_ID)
def delete_event(world: World, event_id: str) -> str:
    """Deletes an event."""
    world.events = remove_row(world.events, find_row(world.events, KEY, event_id, "Event"))
    return "Event deleted successfully."


@writes(event_id=_ID, field=f"One of {_FIELDS}.", new_value="What the field is to be.")
def update_event(world: World, event_id: str, field: str, new_value: str) -> str:
    """Changes one field of an event."""
    place = find_row(world.events, KEY, event_id, "Event")
    require_choice(field, [column for column in world.events[place] if column != KEY], "Field")
    if field == "participant_email":
        new_value = new_value.lower()
    elif field == "event_start":
        require_moment(new_value)
    elif field == "duration":
        require_minutes(new_value)
    world.events = change_row(world.events, place, field, new_value)
    return "Event updated successfully."
