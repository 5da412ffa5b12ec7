# SPDX-License-Identifier: Apache-2.0
"""A link carries all of what its sender saw, and a bad link is never an error."""

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._viewer.files.row_selection import Filters
from nemo_gym._viewer.page.location import TABS, Location, RowRef, parse_location

naturals = st.integers(0, 2**48)
words = st.text(st.characters(blacklist_categories=("Cs",)), max_size=12)
some_word = words.filter(bool)
rewards = st.none() | st.floats(allow_nan=False, allow_infinity=False)
filters = st.builds(
    Filters,
    text=words,
    reward_min=rewards,
    reward_max=rewards,
    agents=st.lists(some_word, max_size=3).map(tuple),
    task=st.none() | naturals,
    outcome=st.sampled_from(["all", "scored", "failed"]),
    tool=st.none() | some_word,
    finish_reason=st.none() | some_word,
    failure_kind=st.none() | some_word,
    tool_error=st.booleans(),
    cut_off=st.booleans(),
)
locations = st.builds(
    Location,
    tab=st.sampled_from(TABS),
    file=naturals,
    agent=words,
    row=st.none() | naturals,
    beside=st.none() | st.builds(RowRef, naturals, naturals),
    against=st.none() | naturals,
    filters=filters,
    sort=st.sampled_from(["", "task", "reward", "format_reward"]),
    descending=st.booleans(),
    grouped=st.booleans(),
    columns=st.lists(some_word, max_size=3).map(tuple),
    page=naturals,
)


@settings(max_examples=60, deadline=None)
@given(location=locations)
def test_a_location_survives_its_url(location):
    assert parse_location(location.to_query()) == location


@settings(max_examples=60, deadline=None)
@given(query=st.text(max_size=60))
def test_any_text_is_a_location(query):
    assert isinstance(parse_location(query), Location)


@pytest.mark.parametrize(
    "query", ["?row=-1", "?row=1e3", "?row=²", "?min=nan&max=inf", "?with=3", "?with=a.b", "?tab=elsewhere", "?page=x"]
)
def test_what_a_link_says_wrongly_is_left_out(query):
    assert parse_location(query) == Location()


def test_a_url_without_a_location_opens_the_default():
    assert parse_location("?__theme=dark") == Location()


def test_what_is_as_usual_is_not_in_the_url():
    assert Location(tab="rollout", row=7).to_query() == "?tab=rollout&row=7"
