# SPDX-License-Identifier: Apache-2.0
"""The whole pipeline: what overrides what, what is filled in, and every problem of a config in one report."""

from copy import deepcopy

import pytest
from hypothesis import example, given, settings, strategies as st
from omegaconf import OmegaConf

from nemo_gym._config.config_parser import Sources, _merge_layer, resolve
from nemo_gym._config.defaults import Machine
from nemo_gym._config.problems import Problems
from nemo_gym._config.provenance import NOWHERE, Layer
from nemo_gym.errors import (
    AlmostServerError,
    ConfigError,
    ConfigInterpolationError,
    ConfigMissingValuesError,
    ConfigProblems,
    InheritPathNotFoundError,
    MalformedConfigPathsError,
    ServerRefNotFoundError,
)
from tests.config.examples import MODEL, WEATHER


def test_earlier_files_yield_to_later_ones_then_env_yaml_then_the_caller_then_the_command_line(write, parse):
    keys = "abcde"
    paths = write(first="".join(f"{key}: 1\n" for key in keys), second="b: 2\nc: 2\nd: 2\ne: 2\n")
    write(env="c: 3\nd: 3\ne: 3\n")
    config = parse("+e=5", paths=paths, initial={"d": 4, "e": 4}).config
    assert [config[key] for key in keys] == [1, 2, 3, 4, 5]


@settings(max_examples=40, deadline=None)
@given(layers=st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9)), min_size=5, max_size=5))
def test_for_any_values_the_strongest_source_that_speaks_wins(tmp_path_factory, layers):
    folder = tmp_path_factory.mktemp("layers")
    first, second, dotenv, initial, command_line = layers
    for name, layer in {"first": first, "second": second, "env": dotenv}.items():
        (folder / f"{name}.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create({"block": layer})))
    sources = Sources(
        command_line=OmegaConf.create({"block": command_line, "config_paths": ["first.yaml", "second.yaml"]}),
        initial=OmegaConf.create({"block": initial}),
        search_roots=[folder],
        dotenv_path=folder / "env.yaml",
    )
    config = resolve(sources, Machine(folder, folder, folder)).config
    assert config.block == {**first, **second, **dotenv, **initial, **command_line}


def test_mappings_merge_deeply_and_lists_are_replaced(write, parse):
    paths = write(first="a: {x: {p: 1}, y: [1, 2]}\n", second="a: {x: {q: 2}, y: [3]}\n")
    assert parse(paths=paths).config.a == {"x": {"p": 1, "q": 2}, "y": [3]}


def test_a_mapping_merged_over_an_interpolation_extends_what_it_refers_to(write, parse):
    paths = write(first="base: {x: 1}\nuser: ${base}\n")
    assert parse("++user.y=2", paths=paths).config.user == {"x": 1, "y": 2}


def test_an_includer_overrides_what_it_includes(write, parse):
    paths = write(outer="config_paths: [inner.yaml]\na: outer\n", inner="a: inner\nb: inner\n")[:1]
    resolved = parse(paths=paths)
    assert (resolved.config.a, resolved.config.b) == ("outer", "inner")
    assert resolved.config.config_paths == ["outer.yaml", "inner.yaml"]


def test_config_paths_of_the_command_line_replace_those_of_env_yaml(write, parse):
    write(one="a: 1", two="a: 2", env="config_paths: [one.yaml]")
    assert parse().config.a == 1
    assert parse(paths=["two.yaml"]).config.a == 2


def test_config_paths_may_refer_to_a_list_in_env_yaml(write, parse):
    write(models__openai="policy: 1", env="simple_weather_config_paths:\n- models/openai.yaml\n- weather.yaml\n")
    write(weather="x: 2")
    config = parse("+config_paths=${simple_weather_config_paths}").config
    assert config.config_paths == ["models/openai.yaml", "weather.yaml"]
    assert (config.policy, config.x) == (1, 2)


def test_a_reference_left_open_in_a_file_is_set_on_the_command_line(write, parse):
    simple_agent = WEATHER.replace("weather_agent", "simple_agent").replace(", name: weather}", ", name: '???'}")
    paths = write(model=MODEL, agent=simple_agent)
    override = "+simple_agent.responses_api_agents.simple_agent.resources_server.name=weather"
    config = parse(override, paths=paths).config
    assert config.simple_agent.responses_api_agents.simple_agent.resources_server.name == "weather"
    with pytest.raises(ConfigMissingValuesError, match=r"agent.yaml:11"):
        parse(paths=paths)


def test_a_deletion_on_the_command_line_removes_a_key_of_a_file(write, parse):
    paths = write(first="a: {x: 1, y: 2}\nb: ???\n")
    assert parse("~a.x", "~b", paths=paths).config.a == {"y": 2}


def test_a_deletion_finds_a_key_that_yaml_reads_as_a_number(write, parse):
    paths = write(one="table: {1: first, 2: second}")
    assert parse("~table.1", paths=paths).config.table == {2: "second"}


def test_deleting_a_key_that_is_not_there_is_reported_with_the_nearest(write, parse):
    paths = write(first="limit: 1\n")
    with pytest.raises(ConfigError, match=r"'~limt' deletes a key(.|\n)*Did you mean 'limit'"):
        parse("~limt", paths=paths)


def test_a_list_and_a_mapping_of_one_name_are_reported_with_both_files(write, parse):
    paths = write(first="a:\n  b: [1]\n", second="x: 1\na:\n  b: {c: 1}\n")
    with pytest.raises(ConfigError, match=r"'a.b' is a list in first.yaml:2 but a mapping in second.yaml:3"):
        parse(paths=paths)


def test_a_deleted_branch_does_not_have_to_be_complete(write, parse):
    paths = write(first="base: {a: 1, b: '???'}\nuser: {_inherit_from: base, _delete_key: b}\n")
    assert parse(paths=paths).config.user == {"a": 1}


def test_a_benchmark_builds_its_servers_on_those_of_another_file(write, parse):
    benchmark = """
config_paths: [weather.yaml]
bench_weather: {_inherit_from: weather}
bench_agent:
  _inherit_from: weather_agent
  responses_api_agents:
    simple_agent:
      resources_server: {name: bench_weather}
"""
    write(weather=WEATHER, model=MODEL, bench=benchmark)
    resolved = parse(paths=["model.yaml", "bench.yaml"])
    assert [instance.name for instance in resolved.servers.instances] == [
        "policy_model",
        "bench_weather",
        "bench_agent",
    ]
    assert resolved.config.bench_agent.responses_api_agents.simple_agent.resources_server == {
        "type": "resources_servers",
        "name": "bench_weather",
    }


def test_a_chain_of_inheritance_ends_in_a_server(write, parse):
    paths = write(
        model=MODEL,
        weather=WEATHER,
        chain="w1: {_copy: weather}\nw2: {_inherit_from: w1}\nw3: {_inherit_from: w2}\n",
    )
    names = [instance.name for instance in parse(paths=paths).servers.instances]
    assert names == ["policy_model", "weather", "weather_agent", "w3"]


def test_a_dummy_model_gives_way_to_a_real_one_but_keeps_its_values_as_defaults(write, parse):
    paths = write(model="policy_model: {responses_api_models: {openai_model: {openai_model: x}}}\n")
    dummy = {"policy_model": {"responses_api_models": {"dummy_model": {"entrypoint": "app.py"}}}}
    config = parse(paths=paths, initial=dummy).config
    assert config.policy_model.responses_api_models.keys() == {"openai_model"}
    assert config.policy_model.responses_api_models.openai_model.entrypoint == "app.py"
    assert parse(initial=dummy).config.policy_model.responses_api_models.keys() == {"dummy_model"}


def test_one_name_for_two_servers_in_two_files_is_reported_with_both_files(write, parse):
    paths = write(
        first="weather:\n  resources_servers:\n    a: {entrypoint: app.py, domain: agent}\n",
        second="weather:\n  resources_servers:\n    b: {entrypoint: app.py, domain: agent}\n",
    )
    with pytest.raises(AlmostServerError) as error:
        parse(paths=paths)
    assert "two servers share the name 'weather'" in str(error.value)
    assert "resources_servers.a  (first.yaml:3)" in str(error.value)
    assert "resources_servers.b  (second.yaml:3)" in str(error.value)


def test_two_files_may_add_to_one_server(write, parse):
    paths = write(weather=WEATHER, model=MODEL, more="weather: {resources_servers: {weather: {timeout: 5}}}\n")
    assert parse(paths=paths).config.weather.resources_servers.weather.timeout == 5


def test_every_problem_is_reported_in_one_go_with_its_place(write, parse):
    broken = WEATHER.replace("domain: agent", "domain: agnet").replace("name: policy_model", "name: policy_modl")
    broken += "copy: {_copy: wether}\nmissing: '???'\nurl: ${nowhere}\na: ${b}\nb: ${a}\nresults_dir: ''\n"
    paths = write(model=MODEL, weather=broken)
    with pytest.raises(ConfigProblems) as error:
        parse(paths=paths)
    assert {type(problem) for problem in error.value.problems} == {
        InheritPathNotFoundError,
        ConfigMissingValuesError,
        ConfigInterpolationError,
        AlmostServerError,
        ServerRefNotFoundError,
        ConfigError,
    }
    for part in (
        "'copy' (weather.yaml:13)",
        "missing (weather.yaml:14)",
        "'url' (weather.yaml:15)",
        "a -> b -> a",
        "(weather.yaml:6)",
        "(weather.yaml:12)",
        "'results_dir' must be a path",
    ):
        assert part in str(error.value)


def test_a_server_that_depends_on_a_failed_directive_causes_no_further_report(write, parse):
    broken = WEATHER.replace("weather:\n  resources_servers:", "weather:\n  _copy: nowhere\n  resources_servers:")
    with pytest.raises(InheritPathNotFoundError):
        parse(paths=write(model=MODEL, weather=broken))


def test_datasets_as_the_documentation_shows_them_are_accepted(write, parse):
    """With a licence given twice and both identifiers, as in the published examples."""
    datasets = """
      datasets:
      - name: train
        type: train
        license: Apache 2.0
        jsonl_fpath: resources_servers/weather/data/train.jsonl
        num_repeats: 1
        gitlab_identifier:
          dataset_name: weather
          version: 0.0.1
          artifact_fpath: weather/train.jsonl
        huggingface_identifier:
          repo_id: nvidia/Nemotron-RL-instruction_following
        license: Apache 2.0
"""
    resolved = parse(paths=write(model=MODEL, weather=WEATHER.rstrip() + datasets))
    (train,) = resolved.servers.instances[-1].datasets
    assert train.license == "Apache 2.0"
    assert train.gitlab_identifier.version == "0.0.1"


def test_a_malformed_env_yaml_is_reported_with_line_and_column(write, parse):
    write(env="a: b: c\n")
    with pytest.raises(ConfigError, match=r"^env.yaml:1:5: not valid YAML"):
        parse()


def test_malformed_config_paths_name_who_gave_them(write, parse):
    with pytest.raises(MalformedConfigPathsError, match="command line: `config_paths` must be a list"):
        parse("+config_paths=some.yaml")
    write(env="config_paths: some.yaml")
    with pytest.raises(MalformedConfigPathsError, match=r"env.yaml: `config_paths` must be a list"):
        parse()


def test_the_source_of_every_value_is_known(write, parse):
    paths = write(model=MODEL, weather=WEATHER + "w2: {_copy: weather, note: 1}\n")
    write(env="limit: 3\n")
    resolved = parse("+policy_api_key=other", paths=paths, initial={"given": 1})
    of = resolved.provenance.of
    assert of("policy_api_key") == "command line"
    assert of("given") == "initial config"
    assert of("limit") == "env.yaml:1"
    assert of("weather.resources_servers.weather.domain") == "weather.yaml:6"
    assert of("w2.resources_servers.weather.domain") == "weather.yaml:6"
    assert of("w2.note") == "weather.yaml:13"
    assert of("weather.resources_servers.weather.port") == "default"
    assert [one.place for one in resolved.provenance.list_given(("policy_api_key",))] == [
        "model.yaml:7",
        "command line",
    ]


def test_a_resolved_config_can_be_explained_leaf_by_leaf(write, parse):
    resolved = parse("+b.c=2", paths=write(some="a: [1, 2]\nb: {d: 3}\n"))
    explained = resolved.provenance.explain(OmegaConf.to_container(resolved.config))
    assert explained["a",] == "some.yaml:1"
    assert explained["b", "c"] == "command line"
    assert explained["b", "d"] == "some.yaml:2"
    assert explained["head_server", "port"] == "default"


READS_VARIABLES = """
world:
  resources_servers:
    world: {entrypoint: app.py, domain: other}
policy_api_key: ${oc.env:NOT_SET_A}
sandboxes:
  cloud: {token: "${oc.env:NOT_SET_B}", urls: ["http://${oc.env:NOT_SET_C}/"]}
"""


def test_an_unset_variable_that_nothing_reads_does_not_stop_the_parse(parse, write):
    config = parse(paths=write(world=READS_VARIABLES)).config
    assert OmegaConf.is_missing(config, "policy_api_key")
    assert OmegaConf.to_container(config, resolve=True)["sandboxes"] == {"cloud": {"token": "???", "urls": ["???"]}}


@pytest.mark.parametrize(
    "tokens",
    [
        ["+world.resources_servers.world.key=${oc.env:NOT_SET_D}"],
        ["+world.resources_servers.world.key=${policy_api_key}"],
        ["+hf_token=${oc.env:NOT_SET_D}"],
        ["+anything=${oc.env:NOT_SET_D}"],
    ],
    ids=["in a server", "by way of another key", "in a setting", "on the command line"],
)
def test_an_unset_variable_that_is_read_is_named(tokens, parse, write):
    with pytest.raises(ConfigInterpolationError, match="reads the environment variable 'NOT_SET_"):
        parse(*tokens, paths=write(world=READS_VARIABLES))


# --- one layer over another -------------------------------------------------------------------------------------------


KEYS = st.sampled_from(["a", "b", "c"])
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from(["x", "???", "${a}", ""]))
VALUES = st.recursive(LEAVES, lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=2))
CONFIGS = st.dictionaries(KEYS, VALUES, max_size=3)


def ours(base, over):
    problems = Problems()
    merged = _merge_layer(deepcopy(base), Layer("over", over), NOWHERE, problems)
    return None if problems else merged


@given(base=CONFIGS, over=CONFIGS)
@settings(max_examples=80, deadline=None)
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
