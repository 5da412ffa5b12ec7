# SPDX-License-Identifier: Apache-2.0
"""The closest known names to an unknown one."""

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers, text

from nemo_gym._util.nearest import did_you_mean, nearest, nearest_spelling


def test_similar_names_come_best_first_and_at_most_three():
    known = ["policy_modell", "policy_models", "policy_mode", "polcy_modes", "judge"]
    found = nearest("policy_model", known)
    assert found[0] == "policy_mode"
    assert len(found) == 3


def test_the_name_itself_is_no_suggestion():
    assert nearest("policy_model", ["policy_model", "policy_mode"]) == ["policy_mode"]
    assert nearest_spelling("policy_model", ["policy_model"]) == []


def test_a_hint_offers_similar_names_else_all_of_them_else_nothing():
    assert did_you_mean("wether", ["weather", "judge"]) == "Did you mean 'weather'?"
    assert did_you_mean("xyz", ["weather", "judge"]) == "available: 'judge', 'weather'"
    assert did_you_mean("xyz", []) == ""


@pytest.mark.parametrize(
    ("given_name", "meant"),
    [
        ("limitt", "limit"),
        ("entrypiont", "entrypoint"),
        ("num-repeats", "num_repeats"),
        ("Num_Repeats", "num_repeats"),
        ("experimentl", "experimental"),
        ("multineedle", "multineedle_resources_server"),
        ("simple_agent", "multineedle_simple_agent"),
    ],
)
def test_a_slip_of_the_finger_and_a_part_of_a_name_are_near(given_name, meant):
    assert nearest(given_name, [meant, "something_else_entirely"]) == [meant]


@pytest.mark.parametrize(
    ("given_name", "other"),
    [
        ("nope", "note"),
        ("frobnicate", "bootstrap"),
        ("math_simple_agent", "code_simple_agent"),
        ("train", "brain_surgery"),
        ("abc", "xyz"),
    ],
)
def test_a_name_that_only_shares_letters_is_not_near(given_name, other):
    assert nearest(given_name, [other]) == []


def test_a_part_of_a_name_is_no_other_spelling_of_it():
    assert nearest_spelling("agent", ["agent_name"]) == []
    assert nearest_spelling("agent_nmae", ["agent_name"]) == ["agent_name"]


@settings(max_examples=50)
@given(text("abcdefgh_", min_size=6, max_size=20), integers(0, 100))
def test_one_letter_left_out_is_always_near(name, place):
    place %= len(name)
    assert nearest_spelling(name[:place] + name[place + 1 :], [name]) == [name]
