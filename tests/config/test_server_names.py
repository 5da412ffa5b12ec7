# SPDX-License-Identifier: Apache-2.0
"""Overrides of an instance that no config has: completed by the default config of its server's folder, or refused."""

import pytest

from nemo_gym._config.server_names import replace_older_names
from nemo_gym._config.server_types import ServerType
from nemo_gym.errors import ConfigMissingValuesError, ServerRefNotFoundError

NEEDLE = """
needle_resources_server:
  resources_servers: {multi_step: {entrypoint: app.py}}
needle_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: needle_resources_server}
"""
DEFAULT_AGENT = """
config_paths: [not_wanted.yaml]
simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: "???"}
      max_steps: 7
"""
AGENT = "responses_api_agents.simple_agent"


@pytest.fixture
def needle(write, parse):
    """Parses overrides beside the config of one environment, where the agent's folder has a config of its own."""
    write(responses_api_agents__simple_agent__configs__simple_agent=DEFAULT_AGENT)
    paths = write(needle=NEEDLE)
    return lambda *tokens: parse(*tokens, paths=paths)


def agent_of(resolved, name: str):
    return resolved.config[name].responses_api_agents.simple_agent


def names(resolved, kind: ServerType) -> list[str]:
    return [instance.name for instance in resolved.servers.instances if kind == instance.SERVER_TYPE]


@pytest.mark.parametrize("name", ["simple_agent", "another"])
def test_an_override_that_the_folders_own_config_makes_whole_is_an_instance(needle, name):
    resolved = needle(f"+{name}.{AGENT}.resources_server.name=needle_resources_server", "+note=1")
    assert set(names(resolved, "responses_api_agents")) == {"needle_agent", name}
    assert agent_of(resolved, name).max_steps == 7
    (note,) = resolved.notes
    assert f"{name!r}" in note
    assert "responses_api_agents/simple_agent/configs/simple_agent.yaml" in note
    assert resolved.provenance.of(f"{name}.{AGENT}.max_steps").endswith("simple_agent.yaml:8")


def test_what_was_said_wins_over_the_folders_own_config(needle):
    resolved = needle(
        f"+simple_agent.{AGENT}.resources_server.name=needle_resources_server", f"+simple_agent.{AGENT}.max_steps=2"
    )
    assert agent_of(resolved, "simple_agent").max_steps == 2


@pytest.mark.parametrize(
    "token",
    [
        f"+simple_agent.{AGENT}.max_steps=2",
        f"+needle_agnet.{AGENT}.resources_server.name=needle_resources_server",
        "+simple_agent.responses_api_agents.unheard_of.max_steps=2",
    ],
    ids=["a value is still missing", "a slip in the name of one that is there", "no such folder"],
)
def test_nothing_else_becomes_an_instance(needle, token):
    resolved = needle(token)
    assert (names(resolved, "responses_api_agents"), resolved.notes) == (["needle_agent"], ())


def test_an_override_of_an_instance_that_is_there_adds_nothing(needle):
    resolved = needle(f"++needle_agent.{AGENT}.max_steps=2")
    assert (agent_of(resolved, "needle_agent").max_steps, resolved.notes) == (2, ())


def test_the_instance_of_a_file_is_not_completed(write, parse):
    write(responses_api_agents__simple_agent__configs__simple_agent=DEFAULT_AGENT)
    paths = write(mine="simple_agent: {responses_api_agents: {simple_agent: {max_steps: 3}}}")
    assert parse(paths=paths).servers.instances == []


# --- short names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("short", ["needle", "multi_step"], ids=["without its ending", "its folder"])
def test_a_short_name_on_the_command_line_leads_to_the_only_server_it_can_mean(needle, short):
    resolved = needle(f"+simple_agent.{AGENT}.resources_server.name={short}")
    assert agent_of(resolved, "simple_agent").resources_server.name == "needle_resources_server"
    assert any(f"{short!r}" in note and "'needle_resources_server'" in note for note in resolved.notes)


def test_a_short_name_that_two_servers_have_is_refused(needle):
    two = "+other={resources_servers: {multi_step: {entrypoint: app.py}}}"
    with pytest.raises(ServerRefNotFoundError, match="'multi_step'"):
        needle(two, f"++needle_agent.{AGENT}.resources_server.name=multi_step")


def test_a_short_name_in_a_file_is_refused_with_the_nearest(write, parse):
    paths = write(needle=NEEDLE.replace("name: needle_resources_server", "name: needle"))
    with pytest.raises(ServerRefNotFoundError, match="Did you mean 'needle_resources_server'"):
        parse(paths=paths)


def test_a_reference_to_a_server_whose_config_is_not_loaded_names_that_config(needle, write):
    write(resources_servers__weather__configs__weather="weather: {}")
    with pytest.raises(ServerRefNotFoundError, match=r"resources_servers/weather/configs/weather\.yaml"):
        needle(f"++needle_agent.{AGENT}.resources_server.name=weather")


def test_the_default_config_alone_still_asks_for_its_missing_value(write, parse):
    paths = write(responses_api_agents__simple_agent__configs__simple_agent=DEFAULT_AGENT.replace("config_paths", "x"))
    with pytest.raises(ConfigMissingValuesError):
        parse(paths=paths)


OLD_REF = {"type": "responses_api_models", "name": "openai_model"}


def agent(ref):
    return {"responses_api_agents": {"simple_agent": {"entrypoint": "app.py", "models": [{"model_server": ref}]}}}


def rename(values):
    replace_older_names(values)
    return values


def test_a_reference_to_the_older_name_leads_to_the_policy_model():
    values = {"policy_model": {"responses_api_models": {}}, "a": agent({**OLD_REF})}
    assert rename(values)["a"] == agent({**OLD_REF, "name": "policy_model"})


def test_a_server_that_really_has_the_older_name_keeps_its_references():
    values = {"policy_model": {}, "openai_model": {}, "a": agent({**OLD_REF})}
    assert rename(values)["a"] == agent(OLD_REF)


def test_without_a_policy_model_nothing_is_renamed():
    assert rename({"a": agent({**OLD_REF})}) == {"a": agent(OLD_REF)}


def test_other_references_are_left_alone():
    other = {"type": "resources_servers", "name": "openai_model"}
    assert rename({"policy_model": {}, "a": agent({**other})})["a"] == agent(other)
