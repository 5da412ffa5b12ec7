# SPDX-License-Identifier: Apache-2.0
"""Times of a day, what an event must keep to, and whether a calendar that a model wrote keeps to it.

Times are minutes after midnight. A model's calendar is the first list with an object in its text; it is read in time
that grows with the text, whatever the text is.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nemo_gym import grading

_DAY = 24 * 60
_TIME = re.compile(r"(\d{1,2})\s*(?::\s*(\d{1,2}))?\s*(?:([ap])m)?", re.ASCII)
_CONSTRAINT = re.compile(r"(before|after|at)\s+(.+)|(between)\s+(.+?)\s+and\s+(.+)")
_LIST_WITH_AN_OBJECT = re.compile(r"\[[^\[\]{]*+\{")


@dataclass(frozen=True)
class Wish:
    """An event that must be in the calendar, somewhere within its bounds."""

    event_id: str
    duration: int
    earliest: int
    """The first minute at which it may begin."""
    latest: int
    """The minute by which it must be over."""
    start: int | None = None
    """When it must begin, if that is fixed."""

    def allows(self, start: int) -> bool:
        """Return whether the event may begin at `start`."""
        return self.earliest <= start and start + self.duration <= self.latest and self.start in (None, start)


def minutes(text: str) -> int:
    """Return a time of day such as `9am`, `10:30 pm` or `14:00`; ValueError if it is none."""
    found = _TIME.fullmatch(text.strip())
    if found is None or (found[2] is None and found[3] is None):
        raise ValueError(f"{text[:40]!r} is not a time like '9am', '10:30pm' or '14:00'")
    hour = int(found[1])
    minute = int(found[2] or 0)
    half = found[3]
    if half and not 1 <= hour <= 12:
        raise ValueError(f"{text!r}: there is no such hour")
    total = (hour % 12 + 12 * (half == "p") if half else hour) * 60 + minute
    if minute > 59 or total > _DAY:
        raise ValueError(f"{text!r}: there is no such time of day")
    return total


def wish(event_id: str, duration: int, constraint: str | None, min_time: str, max_time: str) -> Wish:
    """Return an event as a row describes it; ValueError if a time cannot be understood.

    A constraint in other words than `before T`, `after T`, `between A and B` and `at T` asks for nothing.
    """
    earliest = minutes(min_time)
    latest = minutes(max_time)
    if constraint is None:
        return Wish(event_id, duration, earliest, latest)
    found = _CONSTRAINT.fullmatch(constraint.strip())
    if found is None:
        return Wish(event_id, duration, earliest, latest)
    kind = found[1] or found[3]
    if kind == "between":
        return Wish(event_id, duration, max(earliest, minutes(found[4])), min(latest, minutes(found[5])))
    time = minutes(found[2])
    if kind == "before":
        return Wish(event_id, duration, earliest, min(latest, time))
    if kind == "after":
        return Wish(event_id, duration, max(earliest, time), latest)
    return Wish(event_id, duration, earliest, latest, start=time)


def is_fulfilled(text: str, wishes: Sequence[Wish]) -> bool:
    """Return whether the calendar in `text` has exactly the wished events, each as wished, and no two at once."""
    if not text or "<think>" in text:
        return False
    if not wishes:
        return True
    events = first_list(grading.strip_thinking(text))
    if events is None or len(events) != len(wishes):
        return False
    try:
        starts = {str(event["event_id"]): minutes(event["start_time"]) for event in events}
        durations = {str(event["event_id"]): event["duration"] for event in events}
    except (AttributeError, KeyError, ValueError):  # a time that is no text, a field that is missing, or no time
        return False
    if starts.keys() != {one.event_id for one in wishes}:
        return False
    spans = sorted((starts[one.event_id], starts[one.event_id] + one.duration) for one in wishes)
    return (
        all(one.allows(starts[one.event_id]) for one in wishes)
        and all(durations[one.event_id] == one.duration for one in wishes)
        and all(before[1] <= after[0] for before, after in pairwise(spans))
    )


def first_list(text: str) -> list[Mapping[str, Any]] | None:
    """Return the first list in `text` with an object in it; None if it is not JSON, or holds anything but objects."""
    found = _LIST_WITH_AN_OBJECT.search(text)
    if found is None:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text, found.start())
    except (ValueError, RecursionError):  # no JSON, a number of thousands of digits, or nested too deep
        return None
    return value if all(isinstance(one, dict) for one in value) else None
