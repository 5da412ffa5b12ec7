# SPDX-License-Identifier: Apache-2.0
"""A link carries all of what its sender saw, and a bad link is never an error."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym._reports.query import Filters
from nemo_gym._view.location import TABS, Place, Spot, read_place

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
places = st.builds(
    Place,
    tab=st.sampled_from(TABS),
    file=naturals,
    agent=words,
    row=st.none() | naturals,
    beside=st.none() | st.builds(Spot, naturals, naturals),
    against=st.none() | naturals,
    filters=filters,
    sort=st.sampled_from(["", "task", "reward", "format_reward"]),
    descending=st.booleans(),
    grouped=st.booleans(),
    columns=st.lists(some_word, max_size=3).map(tuple),
    page=naturals,
)


@settings(max_examples=100, deadline=None)
@given(place=places)
def test_a_place_survives_its_url(place):
    assert read_place(place.query()) == place


@settings(max_examples=100, deadline=None)
@given(query=st.text(max_size=60))
def test_any_text_is_a_place(query):
    assert isinstance(read_place(query), Place)


@pytest.mark.parametrize(
    "query", ["?row=-1", "?row=1e3", "?row=²", "?min=nan&max=inf", "?with=3", "?with=a.b", "?tab=elsewhere", "?page=x"]
)
def test_what_a_link_says_wrongly_is_left_out(query):
    assert read_place(query) == Place()


def test_a_url_without_a_place_opens_the_default():
    assert read_place("?__theme=dark", Place(tab="browse")) == Place(tab="browse")


def test_what_is_as_usual_is_not_in_the_url():
    assert Place(tab="rollout", row=7).query() == "?tab=rollout&row=7"
