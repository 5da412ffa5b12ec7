# SPDX-License-Identifier: Apache-2.0
from copy import deepcopy

from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from nemo_gym._config.parse import _merge_layer
from nemo_gym._config.problems import Problems
from nemo_gym._config.provenance import NOWHERE, Layer

KEYS = st.sampled_from(["a", "b", "c"])
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from(["x", "???", "${a}", ""]))
VALUES = st.recursive(LEAVES, lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=2))
CONFIGS = st.dictionaries(KEYS, VALUES, max_size=3)


def ours(base, over):
    problems = Problems()
    merged = _merge_layer(deepcopy(base), Layer("over", over), NOWHERE, problems)
    return None if problems else merged


@given(base=CONFIGS, over=CONFIGS)
@settings(max_examples=200, deadline=None)
@example(base={"a": {"b": 1}}, over={"a": "???"})
@example(base={"a": "???"}, over={"a": {"b": 1}})
@example(base={"a": {"b": 1}}, over={"a": None})
@example(base={"a": {"b": 1}}, over={"a": {}})
def test_a_layer_is_laid_over_another_as_omegaconf_does(base, over):
    merged = ours(base, over)
    if merged is not None and "${" not in str(base):
        assert merged == OmegaConf.to_container(OmegaConf.merge(base, over))


def test_a_mapping_over_an_interpolation_extends_what_it_refers_to():
    base = {"a": "${b}", "b": {"x": 1}}
    assert ours(base, {"a": {"y": 2}}) == {"a": {"x": 1, "y": 2}, "b": {"x": 1}}


def test_what_is_merged_does_not_change_with_its_sources():
    over = {"a": {"b": [1]}}
    merged = ours({}, over)
    merged["a"]["b"].append(2)
    assert over == {"a": {"b": [1]}}
