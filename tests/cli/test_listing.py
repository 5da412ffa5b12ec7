# SPDX-License-Identifier: Apache-2.0
import itertools
import json

import pytest

from nemo_gym import PARENT_DIR, component_search_roots
from nemo_gym.cli.command_table import GROUPS
from nemo_gym.cli.flags import list_names, to_overrides
from tests.support.catalog import server_block, write_benchmark, write_config, write_environment


@pytest.fixture
def catalog(tmp_path):
    write_benchmark(tmp_path, "tiny", repeats=4)
    write_environment(tmp_path, "adding", description="Add two numbers")
    write_environment(
        tmp_path, "chess", domain="games", manifest="{licensing: MIT, modality: text, lifecycle: deprecated}"
    )
    return tmp_path


def rows(said) -> dict[str, dict]:
    return {row["name"]: row for row in json.loads(said.out)}


def test_a_table_has_a_title_with_the_count_and_its_columns(catalog, gym):
    said = gym("list", "benchmarks")
    title, headings, rule, *body = said.out.splitlines()
    assert said.code == 0
    assert title == f"Benchmarks ({len(body)})"
    assert headings.split("  ")[0] == "Benchmark name"
    assert all(word in headings for word in ("Domain", "Agent name", "Num repeats"))
    assert set(rule) == {"-", " "}
    assert any(line.split()[:4] == ["tiny", "agent", "tiny_simple_agent", "4"] for line in body)


def test_the_json_of_benchmarks_keeps_the_old_fields_and_adds_the_new(catalog, gym):
    tiny = rows(gym("list", "benchmarks", "--json"))["tiny"]
    assert (tiny["agent_name"], tiny["domain"], tiny["num_repeats"]) == ("tiny_simple_agent", "agent", 4)
    assert {
        "description",
        "kind",
        "status",
        "version",
        "integration_profile",
        "modality",
        "licensing",
        "lifecycle",
    } <= set(tiny)


@pytest.mark.parametrize(
    ("noun", "name", "fields"),
    [
        ("environments", "adding", {"name", "domain", "description", "kind", "status"}),
        ("agents", "simple_agent", {"name", "pattern", "self_contained", "variants", "description"}),
        ("models", "openai_model", {"name", "model", "model_group"}),
        ("resources-servers", "example_multi_step", {"name", "domain", "description"}),
    ],
)
def test_the_json_of_every_list_has_its_documented_fields(catalog, gym, noun, name, fields):
    assert fields <= set(rows(gym("list", noun, "--json"))[name])


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (("--domain", "math"), {"adding"}),
        (("--licensing", "mit"), {"chess"}),
        (("--modality", "text"), {"chess"}),
        (("--status", "no-manifest"), {"adding"}),
        (("--lifecycle", "deprecated"), {"chess"}),
        (("--kind", "benchmark"), {"tiny"}),
        (("--domain", "games", "--lifecycle", "deprecated"), {"chess"}),
    ],
)
def test_environments_can_be_filtered(catalog, gym, filters, found):
    listed = set(rows(gym("list", "environments", "--json", *filters)))
    assert listed & {"adding", "chess", "tiny"} == found


def test_nothing_found_is_said_and_no_failure(gym, monkeypatch):
    monkeypatch.setattr("nemo_gym.cli.listing.component_search_roots", list)
    assert (gym("list", "environments").out, gym("list", "benchmarks", "--json").out) == (
        "No environments found.\n",
        "[]\n",
    )
    assert gym("list", "environments", "--domain", "math").out == "No environments match domain math.\n"
    assert gym("search", "zzz").out == "No benchmarks, environments or resources servers match 'zzz'.\n"


def test_what_cannot_be_read_is_told_on_stderr_so_that_json_parses(catalog, gym):
    write_config(catalog, "benchmarks/broken/config.yaml", "type: benchmark\na: [")
    said = gym("list", "benchmarks", "--json")
    assert "tiny" in rows(said)
    assert "broken" in said.err


def test_one_name_is_shown_with_how_it_is_used(catalog, gym):
    said = gym("list", "benchmarks", "tiny")
    assert said.out.startswith("The tiny benchmark (domain: agent)\n")
    assert "\nValue: " in said.out
    assert "\nDetails:\n" in said.out
    assert "  gym eval prepare --benchmark tiny\n" in said.out
    assert "  gym eval run --benchmark tiny" in said.out


@pytest.mark.parametrize(
    ("noun", "name"),
    [
        ("benchmarks", "tiny"),
        ("environments", "adding"),
        ("agents", "simple_agent"),
        ("models", "vllm_model"),
        ("resources-servers", "example_multi_step"),
    ],
)
def test_the_json_of_one_name_has_a_usage_example_that_the_command_line_takes(catalog, gym, noun, name):
    shown = json.loads(gym("list", noun, name, "--json").out)
    assert set(shown) == {"name", "type", "domain", "description", "details", "usage_example"}
    for line in shown["usage_example"].splitlines():
        gym_word, *words = line.split()
        assert gym_word == "gym"
        assert gym(*words, "+help=true").code == 0


def test_a_name_that_is_not_there_fails_with_the_nearest_one(catalog, gym):
    said = gym("list", "environments", "addign")
    assert said.code == 1
    assert said.out.startswith("Unknown environment 'addign'. Did you mean 'adding'?\n")
    as_json = gym("list", "environments", "addign", "--json")
    assert (as_json.code, as_json.out) == (1, "")
    assert "Unknown environment 'addign'" in as_json.err


def test_a_search_without_a_type_finds_all_of_a_domain_one_kind_after_the_other(monkeypatch, gym):
    monkeypatch.setattr("nemo_gym.cli.listing.component_search_roots", lambda: [PARENT_DIR])
    of_domain = {
        (one["name"], noun.removesuffix("s"))
        for noun in ("benchmarks", "environments", "resources-servers")
        for one in json.loads(gym("list", noun, "--json").out)
        if one["domain"] == "math"
    }
    found = json.loads(gym("search", "math", "--json").out)
    assert {("gsm8k", "benchmark"), ("math_with_judge", "resources-server")} <= of_domain
    assert of_domain <= {(one["name"], one["type"]) for one in found}
    assert [kind for kind, _ in itertools.groupby(one["type"] for one in found)] == ["benchmark", "resources-server"]
    assert gym("search", "math").out.startswith("Benchmarks, environments and resources servers that match 'math' (")


def test_a_search_is_of_one_type_if_it_is_told_so(catalog, gym):
    assert "tiny" in rows(gym("search", "tiny", "--json"))
    assert "adding" in rows(gym("search", "two numbers", "--json"))
    assert "simple_agent" in rows(gym("search", "agents", "simple", "--json"))
    assert rows(gym("search", "benchmarks", "numbers", "--json")) == {}


@pytest.mark.parametrize("field", ["tiny_simple_agent", "tiny_resources_server", "tiny_benchmark.jsonl", "agent"])
def test_a_search_looks_at_agent_resources_server_dataset_and_domain(catalog, gym, field):
    found = rows(gym("search", "benchmarks", field.removesuffix("_benchmark.jsonl"), "--json"))
    assert "tiny" in found


def test_a_search_without_words_or_of_an_unknown_type_is_a_usage_error(gym):
    assert (gym("search").code, "QUERY" in gym("search").err) == (2, True)
    said = gym("search", "benchmark", "x")
    assert (said.code, "Did you mean 'benchmarks'?" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("noun", "selector"),
    [
        ("benchmarks", "--benchmark"),
        ("environments", "--environment"),
        ("models", "--model-type"),
        ("resources-servers", "--resources-server"),
    ],
)
def test_a_list_has_just_the_names_that_its_selector_takes(foreign_tree, gym, noun, selector):
    listed = set(rows(gym("list", noun, "--json")))
    flag = next(flag for flag in GROUPS["env"]["start"].flags if flag.name == selector)
    assert listed == set(list_names(flag, component_search_roots()))
    for name in listed:
        to_overrides(GROUPS["env"]["start"], [selector, name])


@pytest.fixture
def foreign_tree(catalog):
    """A tree as others have it: flavors without a main config, libraries, nested configs, and names that we have."""
    block = server_block("odd", "resources_servers", "odd", "entrypoint: app.py")
    for name in ("odd/configs/odd_v1", "odd/configs/sub/odd_v2", "mcqa/configs/other", "blackjack/configs/blackjack"):
        write_config(catalog, f"resources_servers/{name}.yaml", block)
    for name in ("odd/app.py", "mcqa/app.py", "library/app.py", "data_only/data/x.jsonl"):
        write_config(catalog, f"resources_servers/{name}", "")
    write_config(catalog, "responses_api_models/openai_model/configs/mine.yaml", "{}")
    write_config(catalog, "benchmarks/again/config.yaml", "config_paths: [benchmarks/tiny/config.yaml]")
    return catalog


def test_a_folder_of_the_users_hides_the_configs_of_a_built_in_one(foreign_tree, gym):
    listed = rows(gym("list", "resources-servers", "--json"))
    assert {name for name in listed if name.startswith("mcqa")} == {"mcqa/other"}
    said = gym("env", "validate", "--resources-server", "mcqa")
    assert said.code == 2
    assert "there is no resources_servers/mcqa/configs/mcqa.yaml. Did you mean 'mcqa/other'?" in said.err


def test_a_list_tells_which_folders_hide_others(foreign_tree, gym):
    said = gym("list", "resources-servers")
    assert f"{foreign_tree / 'resources_servers'} hides mcqa of {PARENT_DIR / 'resources_servers'}" in said.err


def test_validating_a_config_tells_which_folder_hides_another(foreign_tree, gym):
    block = server_block("mine", "resources_servers", "mcqa", "entrypoint: app.py\ndomain: other")
    write_config(foreign_tree, "resources_servers/mcqa/configs/other.yaml", block)
    said = gym("env", "validate", "--resources-server", "mcqa/other")
    assert f"hides mcqa of {PARENT_DIR / 'resources_servers'}" in said.err


def test_the_list_of_models_says_what_each_needs(gym):
    lines = gym("list", "models").out.splitlines()
    needs = {line.split()[0]: line for line in lines if line.startswith(("local_model ", "openai_model "))}
    assert " nothing " in needs["local_model"]
    assert " --model, --model-url, --model-api-key " in needs["openai_model"]


@pytest.mark.parametrize("words", [("list", "environments"), ("list", "models"), ("search", "mcqa")])
def test_an_override_that_nothing_reads_is_refused_like_an_unknown_flag(gym, words):
    said = gym(*words, "+domian=math")
    assert said.code == 2
    assert "nothing reads 'domian'. Did you mean 'domain'?" in said.err
