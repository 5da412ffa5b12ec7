# SPDX-License-Identifier: Apache-2.0
"""Reading one YAML file: the values OmegaConf would give, and errors with file, line and column."""

import pytest
import yaml
from hypothesis import given, settings, strategies as st
from omegaconf import OmegaConf

from nemo_gym._config.config_files import load_file, load_includes, read_config_paths
from nemo_gym.errors import ConfigError, ConfigPathNotFoundError, ConfigProblems, MalformedConfigPathsError

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


def names(includes):
    includes.problems.raise_if_any()
    return [file.name.removesuffix(".yaml") for file in includes.merge_order]


def test_an_includer_comes_after_what_it_includes_and_a_later_path_after_an_earlier_one(write, tmp_path):
    paths = write(
        first="config_paths: [inner.yaml]", second="config_paths: [other.yaml]", inner="config_paths: [deep.yaml]"
    )
    write(deep="a: 1", other="a: 2")
    loaded = load_includes(paths[:2], [tmp_path])
    assert names(loaded) == ["deep", "inner", "first", "other", "second"]
    assert loaded.paths == ["first.yaml", "second.yaml", "inner.yaml", "other.yaml", "deep.yaml"]


def test_a_file_listed_twice_counts_once(write, tmp_path):
    write(shared="a: 1", first="config_paths: [shared.yaml]", second="config_paths: [shared.yaml]")
    assert names(load_includes(["first.yaml", "second.yaml", "first.yaml"], [tmp_path])) == [
        "shared",
        "first",
        "second",
    ]


def test_an_earlier_search_root_wins(write, tmp_path):
    write(near__some="a: near", far__some="a: far", far__only="a: far")
    loaded = load_includes(["some.yaml", "only.yaml"], [tmp_path / "near", tmp_path / "far"])
    assert [file.config.a for file in loaded.merge_order] == ["near", "far"]


def test_an_include_is_also_found_beside_the_including_file(write, tmp_path):
    write(servers__a__main="config_paths: [common.yaml]", servers__a__common="a: 1")
    loaded = load_includes(["servers/a/main.yaml"], [tmp_path])
    loaded.problems.raise_if_any()
    assert [file.config.get("a") for file in loaded.merge_order] == [1, None]
    assert loaded.paths == ["servers/a/main.yaml", str(tmp_path / "servers/a/common.yaml")]


def test_an_absolute_path_is_taken_as_it_is(write, tmp_path):
    write(some="a: 1")
    assert names(load_includes([str(tmp_path / "some.yaml")], [tmp_path / "elsewhere"])) == [str(tmp_path / "some")]


def test_a_missing_file_is_reported_with_where_it_was_looked_for_and_the_nearest_name(write, tmp_path):
    write(resources_servers__weather__configs__weather="a: 1")
    with pytest.raises(ConfigPathNotFoundError) as error:
        names(load_includes(["resources_servers/wether/configs/wether.yaml"], [tmp_path], "command line"))
    text = str(error.value)
    assert "'resources_servers/wether/configs/wether.yaml', named by command line, was not found" in text
    assert str(tmp_path / "resources_servers/wether/configs/wether.yaml") in text
    assert "Did you mean 'resources_servers/weather/configs/weather.yaml'?" in text


def test_a_missing_absolute_path_is_listed_as_the_one_place_that_was_looked_at(tmp_path):
    with pytest.raises(ConfigPathNotFoundError) as error:
        names(load_includes([str(tmp_path / "nowhere.yaml")], [tmp_path]))
    assert [line for line in str(error.value).splitlines() if line.startswith("  - ")] == [
        f"  - {tmp_path / 'nowhere.yaml'}"
    ]


def test_a_missing_include_names_the_file_and_line_that_includes_it(write, tmp_path):
    write(main="a: 1\nconfig_paths:\n- there.yaml\n- not_there.yaml\n", there="b: 1")
    with pytest.raises(ConfigPathNotFoundError, match=r"'not_there.yaml', named by main.yaml:4"):
        names(load_includes(["main.yaml"], [tmp_path]))


def test_a_missing_config_path_is_also_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        names(load_includes(["nowhere.yaml"], [tmp_path]))


def test_a_circle_of_includes_is_named(write, tmp_path):
    write(a="config_paths: [b.yaml]", b="config_paths: [c.yaml]", c="config_paths: [b.yaml]")
    with pytest.raises(ConfigError, match=r"in a circle: b.yaml -> c.yaml -> b.yaml"):
        names(load_includes(["a.yaml"], [tmp_path]))


def test_a_file_that_includes_itself_is_a_circle(write, tmp_path):
    write(a="config_paths: [a.yaml]")
    with pytest.raises(ConfigError, match=r"in a circle: a.yaml -> a.yaml"):
        names(load_includes(["a.yaml"], [tmp_path]))


def test_everything_that_cannot_be_loaded_is_reported_at_once(write, tmp_path):
    write(bad="a: [1", worse="b: c: d", circle="config_paths: [circle.yaml, nowhere.yaml]", text="config_paths: x")
    with pytest.raises(ConfigProblems) as error:
        names(load_includes(["bad.yaml", "worse.yaml", "circle.yaml", "text.yaml"], [tmp_path]))
    for part in ("bad.yaml:1", "worse.yaml:1:5", "circle.yaml -> circle.yaml", "'nowhere.yaml'", "text.yaml:1"):
        assert part in str(error.value)


@pytest.mark.parametrize("value", ["some.yaml", {"a": 1}, [1, 2], 3])
def test_config_paths_must_be_a_list_of_strings(value):
    with pytest.raises(MalformedConfigPathsError, match=r"command line: `config_paths` must be a list"):
        read_config_paths(OmegaConf.create({"config_paths": value}), "command line")


def test_config_paths_may_be_an_interpolation():
    config = OmegaConf.create({"config_paths": "${mine}", "mine": ["a.yaml", "b.yaml"]})
    assert read_config_paths(config, "command line") == ["a.yaml", "b.yaml"]


def test_config_paths_that_refer_to_nothing_are_malformed():
    with pytest.raises(MalformedConfigPathsError, match="cannot be resolved: Interpolation key 'mine' not found"):
        read_config_paths(OmegaConf.create({"config_paths": "${mine}"}), "command line")


@settings(max_examples=30, deadline=None)
@given(edges=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda edge: edge[0] < edge[1])))
def test_in_any_tree_every_file_comes_once_and_after_all_it_includes(tmp_path_factory, edges):
    folder = tmp_path_factory.mktemp("tree")
    for node in range(6):
        listed = [f"{target}.yaml" for source, target in sorted(edges) if source == node]
        (folder / f"{node}.yaml").write_text(f"config_paths: {listed}\n")
    order = names(load_includes([f"{node}.yaml" for node in range(6)], [folder]))
    assert sorted(order) == [str(node) for node in range(6)]
    assert all(order.index(str(target)) < order.index(str(source)) for source, target in edges)
