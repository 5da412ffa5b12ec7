# SPDX-License-Identifier: Apache-2.0
"""Framing and parsing of server-sent events."""

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from nemo_gym._wire import sse
from nemo_gym._wire.sse import Event
from tests.wire.convert_strategies import json_objects, names

quick = settings(max_examples=80, deadline=None)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[a:b] for a, b in pairwise(edges)]


def parse(chunks: list[bytes]) -> list[Event]:
    parser = sse.EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


@quick
@given(st.lists(st.tuples(names, json_objects), max_size=4), st.lists(st.integers(0, 500)))
def test_what_is_framed_is_parsed_wherever_the_stream_is_cut(events, places):
    stream = b"".join(sse.frame(data, name) for name, data in events)
    assert [(event.name, event.json()) for event in parse(cut(stream, places))] == events


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_every_line_ending_works_wherever_the_stream_is_cut(newline):
    first = [b": comment", b"event: a", b"data: 1", b"data:2", b"id: 7", b""]
    stream = newline.join([*first, b"data", b"", b"event: lost", b"", b"data: 3", b"", b""])
    expected = [Event("a", "1\n2"), Event("message", ""), Event("message", "3")]
    assert all(parse(cut(stream, [place])) == expected for place in range(len(stream)))
    assert parse(cut(stream, list(range(len(stream))))) == expected


def test_a_byte_order_mark_is_no_part_of_the_first_field():
    assert parse([b"\xef\xbb", b"\xbfdata: x\n\n"]) == [Event("message", "x")]


def test_an_event_that_was_cut_off_is_none():
    assert parse([b"data: x\n\ndata: y\n"]) == [Event("message", "x")]


async def test_events_of_a_byte_stream():
    async def chunks():
        yield b"data: {}\n"
        yield b"\n" + sse.DONE

    assert [event.data async for event in sse.events(chunks())] == ["{}", "[DONE]"]
