# SPDX-License-Identifier: Apache-2.0
"""Which blocks of a config are servers, which were meant to be, and whether their references lead to one."""

import logging

import pytest
from omegaconf import OmegaConf

from nemo_gym._config.interpolation import read_values
from nemo_gym._config.server_blocks import check_almost_servers, check_references, detect_servers, find_servers
from nemo_gym.errors import AlmostServerError, ServerRefNotFoundError


def model(**extra):
    return {"responses_api_models": {"openai_model": {"entrypoint": "app.py", **extra}}}


def resources(**extra):
    return {"resources_servers": {"weather": {"entrypoint": "app.py", "domain": "agent", **extra}}}


def agent(**extra):
    return {"responses_api_agents": {"simple_agent": {"entrypoint": "app.py", **extra}}}


def model_ref(name):
    return {"type": "responses_api_models", "name": name}


def raise_on_bad_references(**values):
    config = OmegaConf.create(values)
    check_references(detect_servers(config, read_values(config))).raise_if_any()


def check_almost(**values):
    check_almost_servers(OmegaConf.create(values)).raise_if_any()


def test_servers_are_found_among_settings():
    config = OmegaConf.create(
        {
            "policy_model": model(),
            "weather": resources(),
            "an_agent": agent(),
            "some_mapping": {"a": {"b": 1}},
            "limit": 3,
            "head_server": resources(),
        }
    )
    found = [(instance.name, instance.SERVER_TYPE) for instance in find_servers(config)]
    assert found == [
        ("policy_model", "responses_api_models"),
        ("weather", "resources_servers"),
        ("an_agent", "responses_api_agents"),
    ]


def test_extra_keys_are_allowed_on_every_level():
    block = {"note": 1, "resources_servers": {"weather": {"entrypoint": "app.py", "domain": "agent", "x": {"y": 1}}}}
    (instance,) = find_servers(OmegaConf.create({"weather": block}))
    assert instance.get_inner_run_server_config_dict().x.y == 1


def test_a_resources_server_may_leave_its_domain_open():
    (instance,) = find_servers(OmegaConf.create({"w": {"resources_servers": {"w": {"entrypoint": "app.py"}}}}))
    assert instance.get_inner_run_server_config().domain is None


def test_a_block_with_a_server_type_but_no_entrypoint_is_not_even_almost_a_server():
    config = OmegaConf.create({"defaults": {"responses_api_models": {"openai_model": {"extra_body": {}}}}})
    assert find_servers(config) == []
    check_almost(**config)


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (resources(domain="agnet"), "domain: must be one of 'math', 'coding',"),
        (resources(domain="agnet"), "not 'agnet'. Did you mean 'agent'?"),
        (resources(port="http"), "weather.resources_servers.weather.port: must be a whole number, not 'http'"),
        (
            resources(datasets=[{"name": "d", "type": "trian", "jsonl_fpath": "x"}]),
            "datasets.0: `type` must be one of 'train', 'validation', 'example', 'benchmark', not 'trian'. "
            "Did you mean 'train'?",
        ),
        (
            resources(datasets=[{"name": "d", "type": "train", "jsonl_fpath": "x"}]),
            "datasets.0: dataset 'd' is for train, so it needs a `license`",
        ),
        (
            resources(datasets=[{"name": "d", "type": "train", "jsonl_fpath": "x", "license": "Apache"}]),
            "datasets.0.license: must be one of 'Apache 2.0', 'MIT'",
        ),
        ({**resources(), **model()}, "this one has 2 server types: responses_api_models, resources_servers"),
    ],
)
def test_an_almost_server_is_reported_once_with_its_mistakes(block, reason):
    with pytest.raises(AlmostServerError) as error:
        check_almost(weather=block)
    text = str(error.value)
    assert "'weather' looks like a server" in text
    assert "will not be started" in text
    assert reason in text
    assert text.count("responses_api_agents") == 0


def test_the_block_is_shown_without_its_secrets():
    with pytest.raises(AlmostServerError) as error:
        check_almost(weather=resources(domain="x", api_key="sk-hidden", url="https://me:pw@host/"))
    assert "entrypoint: app.py" in str(error.value)
    assert "sk-hidden" not in str(error.value)
    assert "pw@" not in str(error.value)


def test_almost_servers_can_be_tolerated(caplog):
    with caplog.at_level(logging.WARNING):
        check_almost(weather=resources(domain="x"), error_on_almost_servers=False)
    assert "'weather' looks like a server" in caplog.text


def test_references_to_defined_servers_are_fine():
    raise_on_bad_references(policy_model=model(), an_agent=agent(model_server=model_ref("policy_model")))


def test_an_unknown_reference_names_instance_field_and_the_nearest_names():
    with pytest.raises(ServerRefNotFoundError) as error:
        raise_on_bad_references(policy_model=model(), an_agent=agent(model_server=model_ref("policy_modl")))
    text = str(error.value)
    for part in ("'an_agent'", "'model_server'", "responses_api_models 'policy_modl'", "Did you mean 'policy_model'?"):
        assert part in text


@pytest.mark.parametrize(
    ("field", "place"),
    [([model_ref("nope")], "judges[0]"), ({"first": {"server": model_ref("nope")}}, "judges.first.server")],
)
def test_references_nested_in_lists_and_maps_are_checked(field, place):
    with pytest.raises(ServerRefNotFoundError, match="available: 'policy_model'") as error:
        raise_on_bad_references(policy_model=model(), an_agent=agent(judges=field))
    assert repr(place) in str(error.value)


def test_a_reference_of_the_wrong_type_says_what_the_server_is():
    with pytest.raises(ServerRefNotFoundError, match="There is a server 'weather', but it is one of resources_servers"):
        raise_on_bad_references(weather=resources(), an_agent=agent(model_server=model_ref("weather")))


def test_all_unknown_references_are_reported_at_once():
    with pytest.raises(ServerRefNotFoundError) as error:
        raise_on_bad_references(one=agent(model_server=model_ref("x")), two=agent(model_server=model_ref("y")))
    assert "'one'" in str(error.value)
    assert "'two'" in str(error.value)
    assert "No loaded config defines any of responses_api_models." in str(error.value)


def test_a_reference_to_an_almost_server_is_not_reported_besides():
    raise_on_bad_references(
        weather=resources(domain="x"), a=agent(r={"type": "resources_servers", "name": "weather"}), policy_model=model()
    )


def test_a_reference_whose_name_is_missing_is_not_reported_besides():
    raise_on_bad_references(an_agent=agent(model_server=model_ref("???")))
