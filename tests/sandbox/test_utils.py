# SPDX-License-Identifier: Apache-2.0
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym.sandbox.utils import rewrite_image

NAMES = st.text("abc/.:", max_size=8)


def test_a_prefix_is_replaced_by_its_mirror():
    assert (
        rewrite_image("docker.io/library/python:3.12", {"docker.io/": "mirror/hub/"})
        == "mirror/hub/library/python:3.12"
    )


def test_the_longest_prefix_wins():
    rules = {"docker.io/": "a/", "docker.io/library/": "b/"}
    assert rewrite_image("docker.io/library/python", rules) == "b/python"


def test_an_image_that_no_rule_names_stays_as_it_is():
    assert rewrite_image("ghcr.io/x/y", {"docker.io/": "mirror/"}) == "ghcr.io/x/y"
    assert rewrite_image("ghcr.io/x/y", None) == "ghcr.io/x/y"
    assert rewrite_image("ghcr.io/x/y", {}) == "ghcr.io/x/y"


def test_a_replacement_is_not_rewritten_again():
    assert rewrite_image("a/x", {"a/": "b/", "b/": "c/"}) == "b/x"


@given(image=NAMES, rules=st.dictionaries(NAMES, NAMES, max_size=5))
@settings(max_examples=100, deadline=None)
def test_what_comes_out_is_one_replacement_and_the_rest_of_the_image(image, rules):
    matching = [prefix for prefix in rules if image.startswith(prefix)]
    expected = {rules[prefix] + image[len(prefix) :] for prefix in matching if len(prefix) == max(map(len, matching))}
    assert rewrite_image(image, rules) in (expected or {image})
