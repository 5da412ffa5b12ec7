# SPDX-License-Identifier: Apache-2.0
"""The components of the catalog, and the search among them."""

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym._authoring.components import Component, list_components, search
from tests.support.catalog import server_block, write_benchmark, write_config, write_environment


def components(noun, *roots):
    return {component.name: component for component in list_components(noun, [*roots, PARENT_DIR]).components}


def test_a_benchmark_has_its_own_agent_and_what_its_server_says(tmp_path):
    write_benchmark(tmp_path, "tiny", repeats=4)
    tiny = components("benchmarks", tmp_path)["tiny"]
    assert (tiny.facts["agent_name"], tiny.facts["num_repeats"], tiny.domain) == ("tiny_simple_agent", 4, "agent")
    assert tiny.description == "Call one tool once and answer with what it says"
    assert tiny.details["Resources server"] == "tiny_resources_server"


def test_only_a_config_that_runs_by_itself_is_a_benchmark(tmp_path):
    write_benchmark(tmp_path, "tiny")
    write_config(tmp_path, "benchmarks/tiny/overlay.yaml", "# type: benchmark\nsome: {thing: 1}")
    write_config(tmp_path, "benchmarks/other/config.yaml", "a: {responses_api_agents: {x: {datasets: []}}}")
    assert [name for name in components("benchmarks", tmp_path) if name.startswith(("tiny", "other"))] == ["tiny"]


def test_a_benchmark_may_get_its_dataset_from_a_file_that_it_includes(tmp_path):
    write_benchmark(tmp_path, "tiny", repeats=4)
    write_config(tmp_path, "benchmarks/again/config.yaml", "config_paths: [benchmarks/tiny/config.yaml]")
    again = components("benchmarks", tmp_path)["again"]
    assert (again.facts["agent_name"], again.facts["num_repeats"]) == ("tiny_simple_agent", 4)


def test_a_variant_of_a_benchmark_goes_by_its_path(tmp_path):
    write_benchmark(tmp_path, "tiny", file="hard")
    assert "tiny/hard" in components("benchmarks", tmp_path)


def test_an_earlier_root_hides_a_later_one(tmp_path):
    write_benchmark(tmp_path / "first", "tiny", repeats=1)
    write_benchmark(tmp_path / "second", "tiny", repeats=9)
    assert components("benchmarks", tmp_path / "first", tmp_path / "second")["tiny"].facts["num_repeats"] == 1


def test_a_broken_config_is_left_out_with_a_warning(tmp_path):
    write_benchmark(tmp_path, "tiny")
    write_config(tmp_path, "benchmarks/broken/config.yaml", "type: benchmark\n  a: [")
    listing = list_components("benchmarks", [tmp_path, PARENT_DIR])
    assert "broken" not in [component.name for component in listing.components]
    assert "tiny" in [component.name for component in listing.components]
    assert ["broken" in warning for warning in listing.warnings] == [True]


def test_a_manifest_speaks_before_the_config(tmp_path):
    write_environment(tmp_path, "plain")
    write_environment(
        tmp_path,
        "told",
        manifest="{domain: games, version: 1.2.0, modality: [text], licensing: MIT, lifecycle: deprecated}",
    )
    found = components("environments", tmp_path)
    assert (found["plain"].domain, found["plain"].facts["status"]) == ("math", "no-manifest")
    assert (found["told"].domain, found["told"].facts["version"]) == ("games", "1.2.0")
    assert (found["told"].facts["licensing"], found["told"].facts["lifecycle"]) == ("MIT", "deprecated")


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        ("resources_server: {type: resources_servers, name: ???}", "A (composable)"),
        ("agent_framework: x\nresources_server: {name: y}", "B (self-contained)"),
        ("anthropic_api_key: x", "B (self-contained)"),
        ("entrypoint: app.py", "B (self-contained)"),
    ],
)
def test_an_agent_is_composable_unless_it_brings_its_own_world(tmp_path, settings, pattern):
    write_config(
        tmp_path,
        "responses_api_agents/mine/configs/mine.yaml",
        server_block("mine", "responses_api_agents", "mine", settings),
    )
    assert components("agents", tmp_path)["mine"].facts["pattern"] == pattern


def test_an_agent_without_a_config_that_can_be_read_is_composable(tmp_path):
    write_config(tmp_path, "responses_api_agents/mine/configs/mine.yaml", "a: [")
    assert components("agents", tmp_path)["mine"].facts["pattern"] == "A (composable)"


def test_a_model_goes_by_what_model_type_takes(tmp_path):
    block = server_block("policy_model", "responses_api_models", "local", "model: smol")
    write_config(tmp_path, "responses_api_models/local/configs/small/tiny.yaml", block)
    found = components("models", tmp_path)
    assert found["local/small/tiny"].facts == {"model": "smol", "model_group": "local"}
    assert found["openai_model"].facts == {"model": None, "model_group": "openai_model"}


def test_a_resources_server_without_a_description_has_the_first_sentence_of_its_readme(tmp_path):
    write_config(
        tmp_path,
        "resources_servers/mine/configs/mine.yaml",
        server_block("mine", "resources_servers", "mine", "domain: math"),
    )
    write_config(tmp_path, "resources_servers/mine/README.md", "# mine\n\nAdds [numbers](x.md)\nup. And more.\n")
    mine = components("resources-servers", tmp_path)["mine"]
    assert (mine.domain, mine.description) == ("math", "Adds numbers up")


@pytest.mark.parametrize("description", ["7", "0.5", "true", "2024-01-31", "[a, b]", "{a: b}", "???", "null"])
def test_a_description_that_is_not_text_is_none(tmp_path, description):
    write_config(
        tmp_path,
        "resources_servers/mine/configs/mine.yaml",
        server_block("mine", "resources_servers", "mine", f"domain: 3\ndescription: {description}"),
    )
    mine = components("resources-servers", tmp_path)["mine"]
    assert (mine.domain, mine.description) == (None, None)


@pytest.mark.parametrize(
    ("readme", "description"),
    [
        ("# mine\n\n1. Install it.\n2. Run it.\n\nAdds 2. Or more.\n", "Adds 2"),
        ("# mine\n\n2024.\n\nAdds numbers.\n", "Adds numbers"),
        ("# mine\n\n3.5 points. More.\n", "3.5 points"),
        ("# mine\n\n```bash\ngym list\n\ngym search x.\n```\n\nAdds numbers.\n", "Adds numbers"),
        ("# mine\n\n1.\n\n2.\n", None),
    ],
)
def test_a_description_from_a_readme_is_a_sentence_and_no_number(tmp_path, readme, description):
    write_config(tmp_path, "resources_servers/mine/configs/mine.yaml", "{}")
    write_config(tmp_path, "resources_servers/mine/README.md", readme)
    assert components("resources-servers", tmp_path)["mine"].description == description


def test_a_license_that_is_a_number_is_no_license(tmp_path):
    write_environment(tmp_path, "told", manifest="{licensing: 4.0}")
    assert components("environments", tmp_path)["told"].facts["licensing"] is None


def test_a_folder_that_hides_another_is_told(tmp_path):
    for root in ("first", "second"):
        write_config(tmp_path / root, "resources_servers/mine/configs/mine.yaml", "{}")
        write_config(tmp_path / root, "resources_servers/mine/app.py", "")
    listing = list_components("resources-servers", [tmp_path / "first", tmp_path / "second"])
    assert [component.config for component in listing.components] == [
        tmp_path / "first/resources_servers/mine/configs/mine.yaml"
    ]
    first, second = (tmp_path / root / "resources_servers" for root in ("first", "second"))
    assert listing.hidden == [f"{first} hides mine of {second}"]


def test_the_servers_of_this_project_all_have_a_domain():
    assert all(component.domain for component in components("resources-servers").values())


AIME = Component("aime24", "benchmark", None, "math", "Competition problems", facts={"agent_name": "aime_agent"})
CODE = Component(
    "live_code", "benchmark", None, "coding", "Programs", details={"Dataset": "contest", "Agents": ["x_judge"]}
)


def names(query: str) -> list[str]:
    return [component.name for component in search([CODE, AIME], query)]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("AIME", ["aime24"]),
        ("math", ["aime24"]),
        ("competition", ["aime24"]),
        ("aime_agent", ["aime24"]),
        ("contest", ["live_code"]),
        ("judge", ["live_code"]),
        ("compettion", ["aime24"]),
        ("codnig", ["live_code"]),
        ("zzz", []),
    ],
)
def test_a_query_is_part_of_a_field_or_spelt_like_a_word_of_it(query, found):
    assert names(query) == found


def test_names_come_before_other_fields():
    other = Component("a_first", "benchmark", None, "math", "about aime24")
    assert [component.name for component in search([other, AIME], "aime24")] == ["aime24", "a_first"]
