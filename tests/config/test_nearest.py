# SPDX-License-Identifier: Apache-2.0
"""The closest known names to an unknown one."""

from nemo_gym._util.nearest import did_you_mean, nearest


def test_similar_names_come_best_first_and_at_most_three():
    known = ["policy_model", "policy_models", "policy_mode", "policy_modes", "judge"]
    found = nearest("policy_model", known)
    assert found[0] == "policy_model"
    assert len(found) == 3


def test_a_hint_offers_similar_names_else_all_of_them_else_nothing():
    assert did_you_mean("wether", ["weather", "judge"]) == "Did you mean 'weather'?"
    assert did_you_mean("xyz", ["weather", "judge"]) == "available: 'judge', 'weather'"
    assert did_you_mean("xyz", []) == ""
