# SPDX-License-Identifier: Apache-2.0
"""Files that include files: what overrides what, where they are looked for, and what can go wrong."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from nemo_gym._config.includes import load_includes, read_config_paths
from nemo_gym.errors import ConfigError, ConfigPathNotFoundError, ConfigProblems, MalformedConfigPathsError


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
