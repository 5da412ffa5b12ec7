# SPDX-License-Identifier: Apache-2.0
"""`_inherit_from`, `_copy` and `_delete_key`: both forms, chains, and what they say when they cannot be carried out."""

import pytest
from hypothesis import given, settings, strategies as st
from omegaconf import OmegaConf

from nemo_gym._config.directives import apply_directives, merge_values
from nemo_gym.errors import InheritPathNotFoundError


def apply(values):
    done = apply_directives(values)
    done.problems.raise_if_any()
    return done.values


def test_inherit_moves_the_source_and_merges_the_own_keys_over_it():
    assert apply({"base": {"a": 1, "b": {"c": 2, "d": 3}}, "user": {"_inherit_from": "base", "b": {"c": 9}}}) == {
        "user": {"a": 1, "b": {"c": 9, "d": 3}}
    }


def test_copy_leaves_the_source():
    assert apply({"base": {"a": 1}, "user": {"_copy": "base", "b": 2}}) == {
        "base": {"a": 1},
        "user": {"a": 1, "b": 2},
    }


def test_the_value_forms_do_the_same():
    values = {"base": {"x": {"a": 1}, "y": 2}, "moved": "${inherit_from:base.x}", "copied": "${copy:base.y}"}
    assert apply(values) == {"base": {"y": 2}, "moved": {"a": 1}, "copied": 2}


def test_several_blocks_may_inherit_from_one():
    values = {"base": {"a": 1}, "one": {"_inherit_from": "base"}, "two": {"_inherit_from": "base", "a": 2}}
    assert apply(values) == {"one": {"a": 1}, "two": {"a": 2}}


def test_a_chain_is_followed_to_its_end():
    values = {
        "a": {"_inherit_from": "b", "level": "a"},
        "b": {"_inherit_from": "c", "level": "b", "from_b": 1},
        "c": {"level": "c", "from_c": 1},
    }
    assert apply(values) == {"a": {"level": "a", "from_b": 1, "from_c": 1}}


def test_a_chain_through_value_forms_is_followed():
    assert apply({"a": "${copy:b}", "b": "${copy:c.x}", "c": {"x": [1, 2]}}) == {
        "a": [1, 2],
        "b": [1, 2],
        "c": {"x": [1, 2]},
    }


def test_a_path_may_lead_through_what_a_block_inherits():
    values = {
        "judge": {"_copy": "agent.models.main", "temperature": 0},
        "agent": {"_copy": "base", "models": {"main": {"size": 2}}},
        "base": {"models": {"main": {"name": "m", "size": 1}}},
    }
    assert apply(values)["judge"] == {"name": "m", "size": 2, "temperature": 0}


def test_a_block_may_copy_from_what_it_inherits_itself():
    values = {"base": {"k": {"x": 1}}, "user": {"_inherit_from": "base", "again": {"_copy": "user.k"}}}
    assert apply(values) == {"user": {"k": {"x": 1}, "again": {"x": 1}}}


def test_a_path_may_lead_through_an_interpolation():
    values = {"a": "${b}", "b": {"x": {"y": 1}}, "user": {"_copy": "a.x", "z": 2}}
    assert apply(values)["user"] == {"y": 1, "z": 2}


def test_directives_inside_lists_and_nested_blocks_are_carried_out():
    values = {"base": {"a": 1}, "user": {"list": [{"_copy": "base", "b": 2}], "deep": {"er": "${copy:base.a}"}}}
    assert apply(values)["user"] == {"list": [{"a": 1, "b": 2}], "deep": {"er": 1}}


def test_interpolations_travel_along_as_text():
    assert apply({"base": {"url": "${policy_base_url}"}, "user": {"_inherit_from": "base"}}) == {
        "user": {"url": "${policy_base_url}"}
    }


def test_a_source_that_is_missing_makes_the_target_missing():
    assert apply({"base": "???", "user": "${copy:base}", "other": {"_copy": "base", "a": 1}}) == {
        "base": "???",
        "user": "???",
        "other": "???",
    }


def test_delete_key_takes_out_keys_that_came_with_the_source():
    values = {"base": {"a": 1, "b": 2, "c": 3}, "user": {"_inherit_from": "base", "_delete_key": "a, b", "d": 4}}
    assert apply(values) == {"user": {"c": 3, "d": 4}}


def test_delete_key_in_a_nested_block_applies_to_the_merged_block():
    values = {
        "base": {"agents": {"simple": {"datasets": [1], "entrypoint": "app.py"}}},
        "user": {"_inherit_from": "base", "agents": {"simple": {"_delete_key": "datasets", "x": 1}}},
    }
    assert apply(values) == {"user": {"agents": {"simple": {"entrypoint": "app.py", "x": 1}}}}


def test_delete_key_without_a_source_removes_keys_that_another_file_gave():
    assert apply({"server": {"a": 1, "b": 2, "_delete_key": "a"}}) == {"server": {"b": 2}}


def test_an_own_key_that_is_deleted_uncovers_the_one_of_the_source():
    values = {"base": {"a": 1}, "user": {"_copy": "base", "a": 2, "_delete_key": "a"}}
    assert apply(values)["user"] == {"a": 1}


def test_a_deleted_key_is_not_passed_on_along_a_chain():
    values = {"c": {"x": 1, "y": 2}, "b": {"_copy": "c", "_delete_key": "x"}, "a": {"_copy": "b", "z": 3}}
    assert apply(values)["a"] == {"y": 2, "z": 3}


@pytest.mark.parametrize("path", ["weathr", "weather.resources_servers.weathr"])
def test_an_unknown_path_is_reported_with_the_nearest(path):
    values = {"weather": {"resources_servers": {"weather": {}}}, "user": {"_inherit_from": path}}
    with pytest.raises(InheritPathNotFoundError) as error:
        apply(values)
    assert f"'user' builds on {path!r}" in str(error.value)
    assert f"Did you mean {path.replace('weathr', 'weather')!r}?" in str(error.value)


def test_deleting_a_key_that_is_not_there_is_only_noted_with_the_nearest():
    directed = apply_directives({"base": {"dataset": 1}, "user": {"_copy": "base", "_delete_key": "datset"}})
    assert directed.values["user"] == {"dataset": 1}
    assert not directed.problems
    (note,) = directed.notes
    assert "'user' deletes the key 'datset', which is not there. Did you mean 'dataset'" in note


@pytest.mark.parametrize(
    "values",
    [
        {"a": {"_inherit_from": "b"}, "b": {"_inherit_from": "a"}},
        {"a": "${copy:b}", "b": "${inherit_from:c}", "c": "${copy:a}"},
        {"a": {"x": {"_copy": "a"}}},
        {"a": {"_copy": "a"}},
        {"a": {"_copy": "b.x"}, "b": {"_copy": "a.x"}},
    ],
)
def test_a_circle_is_reported_as_one(values):
    with pytest.raises(InheritPathNotFoundError, match=r"in a circle: .* -> "):
        apply(values)


def test_merging_keys_over_a_single_value_is_reported():
    with pytest.raises(InheritPathNotFoundError, match="which is a single value"):
        apply({"base": 3, "user": {"_copy": "base", "a": 1}})


def test_every_directive_that_fails_is_reported_and_the_rest_carried_out():
    done = apply_directives({"a": {"_copy": "x"}, "b": {"_copy": "y"}, "c": {"_copy": "d"}, "d": {"k": 1}})
    assert done.values == {"c": {"k": 1}, "d": {"k": 1}}
    assert done.unresolved == {"a", "b"}
    (error,) = done.problems.errors()
    assert "'x'" in str(error)
    assert "'y'" in str(error)


def test_a_chain_that_breaks_is_reported_once_where_it_breaks():
    done = apply_directives({"a": {"_copy": "b"}, "b": {"_copy": "x"}, "c": {"_copy": "b"}})
    (error,) = done.problems.errors()
    assert str(error).count("builds on") == 1
    assert "'b' builds on 'x'" in str(error)
    assert done.unresolved == {"a", "b", "c"}


def test_a_source_that_is_still_to_be_named_is_left_to_the_check_for_missing_values():
    assert apply({"user": {"_inherit_from": "???", "a": 1}}) == {"user": {"_inherit_from": "???", "a": 1}}


def test_where_a_block_was_built_from_is_recorded():
    done = apply_directives({"base": {"a": 1}, "user": {"inner": {"_inherit_from": "base"}}})
    assert done.inherited == {("user", "inner"): ("base",)}


@settings(max_examples=50, deadline=None)
@given(
    levels=st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(), max_size=4), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_a_chain_equals_the_merge_of_its_levels_in_whatever_order_they_are_written(levels, order):
    expected = {}
    for level in levels:
        expected |= level
    blocks = [
        (f"l{index}", level if index == 0 else {"_inherit_from": f"l{index - 1}", **level})
        for index, level in enumerate(levels)
    ]
    order.shuffle(blocks)
    assert apply(dict(blocks)) == {f"l{len(levels) - 1}": expected}


leaves = st.one_of(st.integers(), st.none(), st.just("???"), st.lists(st.integers(), max_size=2))
trees = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(leaves, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=6),
    max_size=3,
)


def clash(base, over):
    if isinstance(base, dict) and isinstance(over, dict):
        return any(clash(base[key], over[key]) for key in base.keys() & over.keys())
    return {type(base), type(over)} == {dict, list}


@settings(max_examples=50, deadline=None)
@given(base=trees, over=trees)
def test_merging_plain_data_agrees_with_omegaconf(base, over):
    if not clash(base, over):
        assert merge_values(base, over) == OmegaConf.to_container(OmegaConf.merge(base, over))
