# SPDX-License-Identifier: Apache-2.0
"""What the catalog offers: generators, levels of their curricula, and mixtures."""

from collections import Counter

import pytest

from nemo_gym.errors import GymError
from resources_servers.reasoning_gym.catalog import list_environments, make_rows
from resources_servers.reasoning_gym.generate_data import list_tasks


def test_every_generator_and_the_mixture_are_offered():
    found = {one["id"]: one["description"] for one in list_environments()}
    assert set(found) == {*list_tasks(), "composite"}
    assert found["chain_sum"].startswith("arithmetic; levels 0 to ")
    assert found["acre"].endswith("no levels")


def test_a_seed_decides_the_rows():
    assert make_rows("maze", 2, 1, {}) == make_rows("maze", 2, 1, {})
    assert make_rows("maze", 2, 1, {}) != make_rows("maze", 2, 2, {})


def test_rows_climb_through_the_levels_of_a_curriculum():
    rows = make_rows("chain_sum", 7, 1, {"level": [0, 2, 10], "min_digits": 1})
    assert [row["level"] for row in rows] == [0, 0, 2, 2, 10, 10, 10]
    difficulty = {row["level"]: row["metadata"]["difficulty"]["num_terms"] for row in rows}
    assert difficulty[0][1] < difficulty[2][1] < difficulty[10][1]
    (row,) = make_rows("chain_sum", 1, 1, {"level": 2})
    assert row["level"] == 2


def test_a_mixture_draws_generators_by_their_weights():
    weights = {"chain_sum": 9, "gcd": 1}
    options = {"weights": weights, "configs": {"gcd": {"min_numbers": 4, "max_numbers": 4}}, "level": 1}
    rows = make_rows("composite", 60, 1, options)
    drawn = Counter(row["metadata"]["source_dataset"] for row in rows)
    assert drawn["chain_sum"] > 3 * drawn["gcd"] > 0
    difficulties = {row["metadata"]["source_dataset"]: row["metadata"]["difficulty"] for row in rows}
    assert difficulties["gcd"]["num_terms"] == [4, 4]
    assert difficulties["chain_sum"] == make_rows("chain_sum", 1, 1, {"level": 1})[0]["metadata"]["difficulty"]


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("chain_sun", {}, "Did you mean 'chain_sum'"),
        ("alchemy", {}, "available: ab, acre"),
        ("chain_sum", {"no_such_key": 1}, "no_such_key"),
        ("chain_sum", {"level": 99}, "has levels 0 to "),
        ("chain_sum", {"level": "hard"}, "neither a level nor a list of levels"),
        ("acre", {"level": 0}, "has no curriculum"),
        ("caesar_cipher", {"level": 3}, "'caesar_cipher' at level 3"),
        ("composite", {}, "a mixture needs `weights` for its generators"),
        ("composite", {"weights": {"gcdd": 1}}, "Did you mean 'gcd'"),
        ("composite", {"weights": {"gcd": -1}}, "Weight must be positive"),
        ("composite", {"weights": {"gcd": 1}, "sizes": 3}, "no option 'sizes'"),
    ],
)
def test_what_cannot_be_made_is_an_error_that_says_what_can(name, options, told):
    with pytest.raises(GymError, match=told):
        make_rows(name, 2, 1, options)
