# SPDX-License-Identifier: Apache-2.0
"""Reading one YAML file: the values OmegaConf would give, and errors with file, line and column."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from nemo_gym._config.files import load_file
from nemo_gym.errors import ConfigError

keys = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=False),
    st.sampled_from(["on", "off", "yes", "1e-3", "1E5", "2024-01-31", "12:30:00", "0x10", "~", "a b", "???", "${a}"]),
)
blocks = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=10,
)


def load(tmp_path, text):
    path = tmp_path / "some.yaml"
    path.write_text(text)
    return load_file(path, "configs/some.yaml")


@settings(max_examples=50, deadline=None)
@given(block=st.dictionaries(keys, blocks, max_size=4), flow=st.booleans())
def test_values_equal_what_omegaconf_loads(tmp_path_factory, block, flow):
    path = tmp_path_factory.mktemp("yaml") / "some.yaml"
    path.write_text(yaml.safe_dump(block, default_flow_style=flow))
    assert load_file(path).config == OmegaConf.load(path)


def test_plain_scalars_are_typed_as_omegaconf_types_them(tmp_path):
    text = "a: 1e-3\nb: 2024-01-31\nc: on\nd: 0x10\ne: 1_000\nf: .5\ng: 08\nh: ~\ni: 12:30\nj: 1e5\n"
    loaded = load(tmp_path, text).config
    assert loaded == OmegaConf.load(tmp_path / "some.yaml")
    assert loaded.a == 0.001
    assert loaded.b == "2024-01-31"
    assert loaded.c is True


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n"])
def test_an_empty_file_is_an_empty_config(tmp_path, text):
    assert load(tmp_path, text).config == {}


def test_anchors_and_merge_keys_work(tmp_path):
    loaded = load(tmp_path, "base: &base {x: 1, y: 2}\nuser:\n  <<: *base\n  y: 3\n")
    assert loaded.config.user == {"x": 1, "y": 3}


def test_the_line_of_every_key_is_known(tmp_path):
    lines = load(tmp_path, "a:\n  b: 1\n  c:\n  - x\n  - d: 2\n").lines
    assert lines[("a",)] == 1
    assert lines[("a", "b")] == 2
    assert lines[("a", "c", "1", "d")] == 5


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", "configs/some.yaml:3:2"),
        ("a: 1\n\tb: 2\n", "configs/some.yaml:2:1"),
        ("a: b: c\n", "configs/some.yaml:1:5"),
        ("a: 'open\n", "configs/some.yaml:2:1"),
        ("a: *nowhere\n", "configs/some.yaml:1:4"),
        ("a: 1\n---\nb: 2\n", "configs/some.yaml:2:1"),
        ("a: !!python/object:os.system x\n", "configs/some.yaml:1:4"),
        ("? [a, b]\n: 1\n", "configs/some.yaml:1:3"),
    ],
)
def test_malformed_yaml_is_reported_with_file_line_and_column(tmp_path, text, place):
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    assert str(error.value).startswith(f"{place}: not valid YAML: ")


def test_the_offending_line_is_shown(tmp_path):
    with pytest.raises(ConfigError, match=r"\n    a: b: c\n        \^$"):
        load(tmp_path, "a: b: c\n")


@pytest.mark.parametrize(("text", "what"), [("- a\n- b\n", "a list"), ("hello\n", "a single value")])
def test_a_file_that_is_no_mapping_is_refused(tmp_path, text, what):
    with pytest.raises(ConfigError, match=rf"configs/some.yaml:1: .*this is {what}"):
        load(tmp_path, text)


def test_two_servers_of_one_name_in_a_file_are_reported_with_both_lines(tmp_path):
    text = "weather:\n  resources_servers: {a: {}}\nother: 1\nweather:\n  resources_servers: {a: {}}\n"
    with pytest.raises(ConfigError, match=r"configs/some.yaml:4: 'weather' is defined twice, on lines 1 and 4"):
        load(tmp_path, text)


def test_a_nested_key_repeated_with_the_same_value_is_accepted(tmp_path):
    text = "datasets:\n- name: train\n  license: Apache 2.0\n  type: train\n  license: Apache 2.0\n"
    assert load(tmp_path, text).config.datasets[0] == {"name": "train", "license": "Apache 2.0", "type": "train"}


def test_a_nested_key_repeated_with_another_value_is_reported_with_both_lines(tmp_path):
    with pytest.raises(
        ConfigError, match=r"some.yaml:4: 'a.0.license' is given two different values, on lines 2 and 4"
    ):
        load(tmp_path, "a:\n- license: MIT\n  type: train\n  license: TBD\n")


def test_an_alias_of_an_enclosing_block_is_reported(tmp_path):
    with pytest.raises(ConfigError, match=r"some.yaml:2: 'a.b' is an alias of a block that contains it"):
        load(tmp_path, "a: &a\n  b: *a\n")


def test_a_malformed_interpolation_is_reported_with_its_line(tmp_path):
    with pytest.raises(ConfigError, match=r"some.yaml:3: the value of 'a.b' cannot be used"):
        load(tmp_path, "x: 1\na:\n  b: ${foo\n")


def test_a_binary_file_is_refused(tmp_path):
    path = tmp_path / "some.yaml"
    path.write_bytes(b"a: \xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_file(path)
