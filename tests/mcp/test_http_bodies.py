# SPDX-License-Identifier: Apache-2.0
"""Whole requests and replies: what is read is what is given on."""

import math

import pytest
from starlette.types import Message

from nemo_gym._mcp.http import read_body, replay_body
from nemo_gym._mcp.protocol import dump_json, parse_json


def client_that_sends(*messages: Message):
    left = iter(messages)

    async def receive() -> Message:
        return next(left)

    return receive


async def test_a_body_in_parts_is_read_to_its_end():
    receive = client_that_sends(
        {"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.request", "body": b"b"}
    )
    assert await read_body(receive) == b"ab"


async def test_a_client_that_hangs_up_ends_the_body():
    receive = client_that_sends({"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.disconnect"})
    assert await read_body(receive) == b"a"


async def test_a_replayed_body_comes_once_and_then_the_client_is_heard_again():
    receive = replay_body(b"ab", client_that_sends({"type": "http.disconnect"}))
    assert await receive() == {"type": "http.request", "body": b"ab", "more_body": False}
    assert await receive() == {"type": "http.disconnect"}


def test_json_may_hold_what_handlers_take():
    assert math.isnan(parse_json(b"NaN"))
    assert parse_json(dump_json({"n": 10**30, "t": "é"})) == {"n": 1e30, "t": "é"}


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff"])
def test_what_is_not_json_is_a_value_error(raw: bytes):
    with pytest.raises(ValueError):
        parse_json(raw)
