# SPDX-License-Identifier: Apache-2.0
from nemo_gym._config.older_names import with_current_names

OLD_REF = {"type": "responses_api_models", "name": "openai_model"}


def agent(ref):
    return {"responses_api_agents": {"simple_agent": {"entrypoint": "app.py", "models": [{"model_server": ref}]}}}


def test_a_reference_to_the_older_name_leads_to_the_policy_model():
    values = {"policy_model": {"responses_api_models": {}}, "a": agent(OLD_REF)}
    assert with_current_names(values)["a"] == agent({**OLD_REF, "name": "policy_model"})
    assert values["a"] == agent(OLD_REF), "the caller's values stay as they are"


def test_a_server_that_really_has_the_older_name_keeps_its_references():
    values = {"policy_model": {}, "openai_model": {}, "a": agent(OLD_REF)}
    assert with_current_names(values) == values


def test_without_a_policy_model_nothing_is_renamed():
    assert with_current_names({"a": agent(OLD_REF)}) == {"a": agent(OLD_REF)}


def test_other_references_are_left_alone():
    other = {"type": "resources_servers", "name": "openai_model"}
    assert with_current_names({"policy_model": {}, "a": agent(other)})["a"] == agent(other)
