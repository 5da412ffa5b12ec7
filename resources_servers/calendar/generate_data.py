# SPDX-License-Identifier: Apache-2.0
"""Write the tasks of this environment: always the same ones.

A day is planned in secret, its events are asked for one by one, and each gets a constraint that the secret plan keeps:
so there is always an answer. What the assistant has answered in the chat so far is another plan, made without knowing
what comes: in half of the tasks the last wish forces it to move events.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from resources_servers.calendar.schedule import Wish, wish

HERE = Path(__file__).parent
SEED = 0
EXAMPLE_ROWS = 5
ROWS = 60
STEP = 15
NAMES = (
    "Dentist", "Team lunch", "Budget review", "Yoga", "Interview", "Piano lesson", "Code review", "Groceries",
    "Call with Ada", "Haircut", "Board meeting", "Physiotherapy", "Design workshop", "School pick-up", "Book club",
)  # fmt: skip
DAYS = ((9, 17), (8, 16), (10, 18), (8, 18))

SYSTEM = """\
You keep the user's calendar for one day. The day begins at {begin} and ends at {end}; events lie within it and do not \
overlap. You may move events to make room, as long as everything that the user has asked for stays true.
Answer each message with a JSON list of all events so far, one object for each:
[{{"event_id": 0, "event_name": "...", "start_time": "9:30am", "duration": 30}}]
Durations are in minutes. Events are numbered from 0 in the order in which the user asks for them. An event that has \
to be before a time must be over by then."""


class Event(NamedTuple):
    """An event of the secret plan."""

    name: str
    start: int
    duration: int
    constraint: str | None


def all_rows(count: int = ROWS, seed: int = SEED) -> list[dict[str, Any]]:
    """Return tasks; in every other one the last wish has no room unless an event is moved."""
    draw = random.Random(seed)
    return [_row(draw, must_move=number % 2 == 1) for number in range(count)]


def rows() -> list[dict[str, Any]]:
    """Return the example rows: the first few of all."""
    return all_rows()[:EXAMPLE_ROWS]


def solution(row: dict[str, Any]) -> list[str]:
    """Return the turn of a model that plans well."""
    wishes = [
        wish(key, event["duration"], event["constraint"], event["min_time"], event["max_time"])
        for key, event in row["exp_cal_state"].items()
    ]
    starts = plan(wishes)
    assert starts is not None, "there is a plan, as the row was made from one"
    names = [
        turn["content"].split("'")[1] for turn in row["responses_create_params"]["input"] if turn["role"] == "user"
    ]
    events = [
        {"event_id": int(one.event_id), "event_name": name, "start_time": spoken(start), "duration": one.duration}
        for one, name, start in zip(wishes, names, starts, strict=True)
    ]
    return [f"Here is your calendar:\n{json.dumps(events)}"]


def plan(wishes: Sequence[Wish], taken: tuple[tuple[int, int], ...] = ()) -> list[int] | None:
    """When events can begin, each as early as the others allow; None if they do not fit."""
    if not wishes:
        return []
    first, *others = wishes
    for start in range(first.earliest, first.latest - first.duration + 1, STEP):
        is_free = all(start + first.duration <= begin or end <= start for begin, end in taken)
        if first.allows(start) and is_free:
            rest = plan(others, (*taken, (start, start + first.duration)))
            if rest is not None:
                return [start, *rest]
    return None


def spoken(time: int) -> str:
    """Return a time of day as people say it."""
    hour, minute = divmod(time, 60)
    return f"{(hour - 1) % 12 + 1}{f':{minute:02d}' if minute else ''}{'am' if hour % 24 < 12 else 'pm'}"


def _row(draw: random.Random, *, must_move: bool) -> dict[str, Any]:
    first, last = draw.choice(DAYS)
    events = _secret_plan(draw, first * 60, last * 60)
    begin = spoken(first * 60)
    end = spoken(last * 60)
    wishes = [wish(str(n), one.duration, one.constraint, begin, end) for n, one in enumerate(events)]
    if _has_room(wishes) == must_move:
        return _row(draw, must_move=must_move)
    chat = [{"role": "system", "content": SYSTEM.format(begin=begin, end=end)}]
    for number, event in enumerate(events):
        chat.append({"role": "user", "content": _asked(draw, event)})
        if number < len(events) - 1:
            chat.append({"role": "assistant", "content": _answer(events, wishes[: number + 1])})
    return {
        "responses_create_params": {"input": chat},
        "exp_cal_state": {
            str(number): {
                "event_id": number,
                "duration": event.duration,
                "constraint": event.constraint,
                "min_time": begin,
                "max_time": end,
            }
            for number, event in enumerate(events)
        },
    }


def _has_room(wishes: Sequence[Wish]) -> bool:
    """Return whether the last event fits between the others as they were placed without it."""
    *earlier, last = wishes
    starts = plan(earlier)
    assert starts is not None, "the events fit, as all of them do"
    taken = tuple((start, start + one.duration) for start, one in zip(starts, earlier, strict=True))
    return plan([last], taken) is not None


def _secret_plan(draw: random.Random, first: int, last: int) -> list[Event]:
    """Return events one after the other with gaps between them, asked for in any order."""
    events = list[Event]()
    time = first + draw.randrange(0, 90, STEP)
    names = draw.sample(NAMES, 6)
    for _ in range(draw.randint(3, 5)):
        duration = draw.choice((15, 30, 45, 60, 90))
        if time + duration > last:
            break
        events.append(Event(names.pop(), time, duration, _constraint(draw, time, duration, first, last)))
        time += duration + draw.randrange(0, 120, STEP)
    draw.shuffle(events)
    return events


def _constraint(draw: random.Random, start: int, duration: int, first: int, last: int) -> str | None:
    end = start + duration
    slack = draw.choice((0, 15, 30, 60))
    low = max(first, start - slack)
    high = min(last, end + slack)
    return draw.choice(
        (
            None,
            f"before {spoken(high)}",
            f"after {spoken(low)}",
            f"between {spoken(low)} and {spoken(high)}",
            f"at {spoken(start)}",
        )
    )


def _asked(draw: random.Random, event: Event) -> str:
    opening = draw.choice(("Please add '{}'", "I have '{}'", "Put '{}' on my calendar", "Schedule '{}'"))
    when = f"it has to be {event.constraint}" if event.constraint else "any time is fine"
    return f"{opening.format(event.name)}: {event.duration} minutes, {when}."


def _answer(events: Sequence[Event], wishes: Sequence[Wish]) -> str:
    starts = plan(wishes)
    assert starts is not None, "the events fit, as all of them do"
    return json.dumps(
        [
            {"event_id": number, "event_name": event.name, "start_time": spoken(start), "duration": event.duration}
            for number, (event, start) in enumerate(zip(events, starts, strict=False))
        ]
    )


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`, and all rows to `train.jsonl` beside it."""
    for file, lines in ((path, rows()), (path.with_name("train.jsonl"), all_rows())):
        file.write_text("".join(f"{json.dumps(row)}\n" for row in lines))


if __name__ == "__main__":
    write()
