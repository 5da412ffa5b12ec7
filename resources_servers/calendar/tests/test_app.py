# SPDX-License-Identifier: Apache-2.0
"""A calendar is right if it keeps to everything that was asked for, and worth nothing otherwise."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym.base_resources_server import BaseVerifyResponse
from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import asked, reasoning, reply, running, tool_call
from resources_servers.calendar import generate_data
from resources_servers.calendar.app import CalendarResourcesServer, CalendarVerifyRequest
from resources_servers.calendar.schedule import Wish, first_list, is_fulfilled, minutes, wish

DAY = {"min_time": "9am", "max_time": "5pm"}


def expected(*events: tuple[int, str | None]) -> dict[str, Any]:
    """An expectation from durations and constraints."""
    return {
        str(number): {"event_id": number, "duration": duration, "constraint": constraint, **DAY}
        for number, (duration, constraint) in enumerate(events)
    }


TWO = expected((60, "before 11am"), (30, None))


def calendar(*events: tuple[Any, Any], **more: Any) -> str:
    """A reply with start times and durations."""
    return "Here you are: " + json.dumps(
        [
            {"event_id": number, "event_name": "x", "start_time": start, "duration": duration, **more}
            for number, (start, duration) in enumerate(events)
        ]
    )


def body(said: Any, state: dict[str, Any] = TWO, **row: Any) -> dict[str, Any]:
    response = reply(said) if isinstance(said, str) else said
    return {"responses_create_params": asked("?"), "response": response, "exp_cal_state": state, **row}


async def reward(said: Any, state: dict[str, Any] = TWO) -> Any:
    async with running(calendar=CalendarResourcesServer) as client:
        return (await get_response_json(await client.post("calendar", "/verify", json=body(said, state))))["reward"]


@pytest.mark.parametrize(
    "said",
    [
        calendar(("9am", 60), ("10am", 30)),
        calendar(("10:00 am", 60), (" 4:30 pm", 30)),
        calendar(("09:00", 60), ("16:30", 30.0)),
        '{"events": ' + calendar(("9am", 60), ("10am", 30), where={"room": 1}).partition(": ")[2] + "}",
        "easy</think>" + calendar(("9am", 60), ("10am", 30)),
        f"Some [notes] and [1, 2].\n```json\n{calendar(('9am', 60), ('12pm', 30))}\n```\nAnd [{{}}] after it.",
    ],
)
async def test_any_calendar_that_keeps_to_everything_is_worth_one(said):
    assert await reward(said) == 1.0


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("<think>easy</think>" + calendar(("9am", 60), ("10am", 30)), "it thinks aloud"),
        ("I have added them.", "there is no list"),
        ("[]", "there are no events"),
        ('[{"event_id": 0', "the list is cut off"),
        (calendar(("9am", 60)), "one is missing"),
        (calendar(("9am", 60), ("10am", 30), ("11am", 30)), "there is one too many"),
        (calendar(("9am", 60), ("9:30am", 30)), "they overlap"),
        (calendar(("9am", 45), ("10am", 30)), "a duration is wrong"),
        (calendar(("9am", 60), ("10am", None)), "a duration is missing"),
        (calendar(("9am", 60), ("10am", True)), "a duration is no number"),
        (calendar(("9am", 60), ("10am", "30")), "a duration is a text"),
        (calendar(("9am", 60), ("10AM", 30)), "a time is in capitals"),
        (calendar(("9am", 60), ("10:75am", 30)), "a time does not exist"),
        (calendar(("9am", 60), ("10 a.m.", 30)), "a time has dots"),
        (calendar(("09:00", 60), ("10:00:00", 30)), "a time has seconds"),
        (calendar(("9am", 60), ("10am", 30)).replace('"', "'"), "it is no JSON"),
        ("A [note {x}]. " + calendar(("9am", 60), ("10am", 30)), "the first list is no JSON"),
        (calendar(("9am", 60), ("10am", 30)) + "</think>", "it is thinking"),
        (calendar(("10:30am", 60), ("9am", 30)), "one is not over in time"),
        (calendar(("9am", 60), ("8am", 30)), "one is before the day begins"),
        (calendar(("9am", 60), ("4:45pm", 30)), "one is not over when the day ends"),
        (calendar(("9am", 60), ("late", 30)), "a time is none"),
        (calendar(("9am", 60), (600, 30)), "a time is no text"),
        (calendar(("9am", 60), ("10am", 30), event_id=0), "an event is there twice"),
        (calendar(("10am", 60), ("10am", 30)) + calendar(("9am", 60), ("10am", 30)), "only the first list counts"),
    ],
)
async def test_anything_else_is_worth_nothing(said, why):
    assert await reward(said) == 0.0, why


@pytest.mark.parametrize("response", [reply(), reply(""), reply(reasoning("[{}]")), reply(tool_call("x", "{no"))])
async def test_no_answer_is_worth_nothing(response):
    assert await reward(response) == 0.0


@pytest.mark.parametrize("said", ["Nothing to do.", calendar(("9am", 60))])
async def test_where_nothing_is_expected_any_answer_is_right(said):
    assert await reward(said, {}) == 1.0


@pytest.mark.parametrize("said", ["", reply(), reply(reasoning("x")), "<think>x</think>Nothing to do."])
async def test_where_nothing_is_expected_silence_and_thinking_are_wrong(said):
    assert await reward(said, {}) == 0.0


async def test_only_the_last_item_is_read():
    right = calendar(("9am", 60), ("10am", 30))
    assert await reward(reply("Here it is.", right)) == 1.0
    assert await reward(reply(right, "That is all.")) == 0.0
    assert await reward(reply(right, tool_call("x", "{}"))) == 0.0


async def test_an_event_that_is_listed_twice_is_wrong():
    events = json.loads(calendar(("9am", 60), ("10am", 30)).partition(": ")[2])
    assert await reward(json.dumps([*events, events[0]])) == 0.0


@pytest.mark.parametrize("more", [{"event_name": "x [y]"}, {"attendees": ["Ada"]}])
async def test_brackets_within_an_event_are_fine(more):
    assert await reward(calendar(("9am", 60), ("10am", 30), **more)) == 1.0


async def test_events_are_expected_by_their_keys():
    state = {"7": {"duration": 30, "constraint": None, **DAY}}
    assert await reward('[{"event_id": 7, "start_time": "9am", "duration": 30}]', state) == 1.0


async def test_a_constraint_in_other_words_asks_for_nothing():
    assert await reward(calendar(("9am", 60)), expected((60, "around noon"))) == 1.0


@pytest.mark.parametrize(
    ("constraint", "right", "wrong"),
    [
        ("before 12pm", ["9am", "11am"], ["11:01am", "12pm"]),
        ("after 2pm", ["2pm", "4pm"], ["1:59pm", "4:01pm"]),
        ("between 10am and 12pm", ["10am", "11am"], ["9:59am", "11:01am"]),
        ("at 3:30pm", ["3:30pm", "15:30"], ["3:29pm", "3:30am"]),
        (None, ["9am", "4pm"], ["8:59am", "4:01pm"]),
    ],
)
async def test_each_constraint_has_its_bounds(constraint, right, wrong):
    state = expected((60, constraint))
    assert [await reward(calendar((start, 60)), state) for start in right] == [1.0] * len(right)
    assert [await reward(calendar((start, 60)), state) for start in wrong] == [0.0] * len(wrong)


@pytest.mark.parametrize(
    "event",
    [
        {"constraint": "before lunch"},
        {"min_time": "25:00"},
        {"max_time": "13pm"},
        {"duration": 0},
        {"duration": None},
    ],
)
async def test_a_row_that_cannot_be_graded_is_refused_by_name(event):
    state = {"0": {"event_id": 0, "duration": 30, "constraint": None, **DAY, **event}}
    async with running(calendar=CalendarResourcesServer) as client:
        refused = await client.post("calendar", "/verify", json=body("x", state))
        assert refused.status == 422
        assert (await get_response_json(refused))["detail"][0]["loc"][:3] == ["body", "exp_cal_state", "0"]


async def test_the_reply_has_no_fields_of_the_row():
    async with running(calendar=CalendarResourcesServer) as client:
        result = await get_response_json(await client.post("calendar", "/verify", json=body("x", colour="red")))
        assert await get_response_json(await client.get("calendar", "/reverify_mode")) == "stateless"
    assert result.keys() == BaseVerifyResponse.model_fields.keys()


async def test_many_at_once_keep_their_answers():
    async with running(calendar=CalendarResourcesServer) as client:

        async def one(number: int) -> Any:
            sent = body(calendar(("9am", number)), expected((number if number % 2 else number + 1, None)))
            return (await get_response_json(await client.post("calendar", "/verify", json=sent)))["reward"]

        assert await asyncio.gather(*map(one, range(1, 65))) == [1.0, 0.0] * 32


# --- the data ---------------------------------------------------------------------------------------------------------


def wishes_of(row: dict[str, Any]) -> list[Wish]:
    request = CalendarVerifyRequest.model_validate({**row, "response": reply()})
    return [event.wish(event_id) for event_id, event in request.exp_cal_state.items()]


def test_every_gold_answer_passes():
    for row in generate_data.all_rows():
        (said,) = generate_data.solution(row)
        assert is_fulfilled(said, wishes_of(row))


def test_the_last_answer_of_the_chat_is_never_enough():
    for row in generate_data.all_rows():
        assert not is_fulfilled(row["responses_create_params"]["input"][-2]["content"], wishes_of(row))


def test_the_rows_have_all_constraints():
    states = [row["exp_cal_state"] for row in generate_data.all_rows()]
    kinds = {(event["constraint"] or "none").partition(" ")[0] for state in states for event in state.values()}
    assert kinds == {"none", "before", "after", "between", "at"}


def test_every_other_row_forces_an_event_to_move():
    for number, row in enumerate(generate_data.all_rows()):
        *_, said, _ = row["responses_create_params"]["input"]
        before = {event["event_id"]: event["start_time"] for event in first_list(said["content"]) or []}
        after = first_list(generate_data.solution(row)[0]) or []
        moved = any(before.get(event["event_id"], event["start_time"]) != event["start_time"] for event in after)
        assert moved >= (number % 2 == 1)


# --- whatever a model may say -----------------------------------------------------------------------------------------

WISHES = [wish("0", 60, "before 11am", "9am", "5pm"), wish("1", 30, None, "9am", "5pm")]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["9am", "0", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
events = st.dictionaries(st.sampled_from(["event_id", "event_name", "start_time", "duration"]), values)


@given(st.text() | st.lists(events, max_size=3).map(json.dumps) | st.from_regex(r"([\[\]{}\":,]|\w){0,60}"))
@settings(max_examples=40, deadline=None)
def test_whatever_a_model_says_is_right_or_wrong(said):
    assert is_fulfilled(said, WISHES) in (True, False)


@given(st.text(max_size=12) | st.from_regex(r"\d{1,3}(:\d\d)? ?([ap]m)?", fullmatch=True))
@settings(max_examples=40, deadline=None)
def test_a_text_is_a_time_of_day_or_an_error(text):
    try:
        time = minutes(text)
    except ValueError:
        return
    assert 0 <= time <= 24 * 60


@pytest.mark.parametrize(("text", "time"), [("12am", 0), ("12pm", 720), ("12:30 am", 30), ("24:00", 1440), ("0:05", 5)])
def test_times_are_read_as_people_write_them(text, time):
    assert minutes(text) == time


@pytest.mark.parametrize(
    "said", ["[" * 1_000_000, "[{" * 500_000, '[{"a":' * 170_000, '[{"a":"' + "x" * 1_000_000, "[ " * 500_000]
)
def test_a_megabyte_of_brackets_is_read_at_once(said):
    assert not is_fulfilled(said, WISHES)
