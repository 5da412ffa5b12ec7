# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym.sandbox.utils import CPU_CAP_ENV_VARS, cpu_cap_env, rewrite_image

NAMES = st.text("abc/.:", max_size=8)


def rules(**prefixes: str) -> list[dict[str, str]]:
    return [{"from": source, "to": target} for source, target in prefixes.items()]


def test_a_prefix_is_replaced_by_its_mirror():
    mirror = [{"from": "docker.io/", "to": "mirror/hub/"}]
    assert rewrite_image("docker.io/library/python:3.12", mirror) == "mirror/hub/library/python:3.12"


def test_the_first_prefix_that_matches_wins():
    assert rewrite_image("abc", rules(x="0", a="1", ab="2")) == "1bc"


def test_an_image_that_no_rule_names_stays_as_it_is():
    assert rewrite_image("ghcr.io/x/y", rules(docker="mirror")) == "ghcr.io/x/y"
    assert rewrite_image("ghcr.io/x/y", None) == "ghcr.io/x/y"
    assert rewrite_image("ghcr.io/x/y", []) == "ghcr.io/x/y"
    assert rewrite_image(None, rules(docker="mirror")) is None


def test_a_replacement_is_not_rewritten_again():
    assert rewrite_image("a/x", rules(a="b", b="c")) == "b/x"


def test_a_rule_that_lacks_a_part_is_named():
    with pytest.raises(ValueError, match=r"`from` and `to`.*'frm'(.|\n)*hint"):
        rewrite_image("x", [{"frm": "a", "to": "b"}])


@given(image=NAMES, pairs=st.lists(st.tuples(NAMES, NAMES), max_size=5))
@settings(max_examples=50, deadline=None)
def test_what_comes_out_is_one_replacement_and_the_rest_of_the_image(image, pairs):
    expected = next((target + image[len(prefix) :] for prefix, target in pairs if image.startswith(prefix)), image)
    assert rewrite_image(image, [{"from": prefix, "to": target} for prefix, target in pairs]) == expected


@pytest.mark.parametrize(("cpu", "cores"), [(0.5, "1"), (1, "1"), (2.9, "2"), (16, "16")])
def test_programs_are_told_to_keep_to_whole_cores_and_at_least_one(cpu, cores):
    assert cpu_cap_env(cpu) == dict.fromkeys(CPU_CAP_ENV_VARS, cores)


def test_without_a_limit_programs_are_told_nothing():
    assert cpu_cap_env(None) == {}


def test_the_cpu_cap_leaves_makeflags_alone():
    assert len(CPU_CAP_ENV_VARS) == 19
    assert "MAKEFLAGS" not in CPU_CAP_ENV_VARS
