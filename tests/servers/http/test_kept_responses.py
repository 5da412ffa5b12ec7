# SPDX-License-Identifier: Apache-2.0
"""Responses that a server keeps: how conversations are put together, and what is dropped."""

import json

from nemo_gym._servers.http.kept_responses import KeptResponses


def keep(kept: KeptResponses, name: str, text: str, previous: str | None = None) -> None:
    reply = json.dumps({"id": name, "output": [{"type": "message", "id": f"answer to {text}"}]}).encode()
    kept.keep(name, reply, {"input": text, "previous_response_id": previous})


def test_a_conversation_holds_every_turn_in_order():
    kept = KeptResponses()
    keep(kept, "a", "one")
    keep(kept, "b", "two", previous="a")
    history = kept.read_history("b")
    assert [item.get("content") or item["id"] for item in history] == ["one", "answer to one", "two", "answer to two"]


def test_a_conversation_with_a_gap_is_none():
    kept = KeptResponses()
    keep(kept, "b", "two", previous="a")
    assert kept.read_history("b") is None
    assert kept.read_history("unknown") is None


def test_the_oldest_is_dropped_but_not_one_whose_conversation_goes_on():
    kept = KeptResponses(max_responses=2)
    keep(kept, "a", "one")
    keep(kept, "b", "two")
    kept.read_history("a")
    keep(kept, "c", "three")
    assert [name for name in "abc" if kept.find(name)] == ["a", "c"]


def test_bytes_are_bounded_and_given_back():
    kept = KeptResponses(max_bytes=600)
    for name in "abcdefgh":
        keep(kept, name, "x" * 100)
    assert [name for name in "abcdefgh" if kept.find(name)] == ["g", "h"]
    assert kept.delete("g")
    assert not kept.delete("g")
    keep(kept, "i", "x" * 100)
    assert kept.find("h")
    keep(kept, "too large", "x" * 1000)
    assert kept.find("too large") is None
