# SPDX-License-Identifier: Apache-2.0
"""Masking goes by what a key means: credentials are hidden, settings that merely sound alike stay visible."""

import pytest
from omegaconf import OmegaConf

from nemo_gym._config.secrets import dump_masked, is_secret_key
from nemo_gym.secret_utils import recursively_hide_secrets


def hidden(values):
    config = OmegaConf.create(values)
    recursively_hide_secrets(config)
    return OmegaConf.to_container(config)


@pytest.mark.parametrize(
    "key",
    [
        "api_key",
        "policy_api_key",
        "openai_api_key",
        "OPENAI_API_KEY",
        "X-Api-Key",
        "apikey",
        "api_keys",
        "token",
        "hf_token",
        "mlflow_tracking_token",
        "password",
        "db_password",
        "client_secret",
        "secret_key",
        "aws_secret_access_key",
        "credentials",
        "Authorization",
        "private_key",
        "access_key",
    ],
)
def test_credentials_are_secret(key):
    assert is_secret_key(key)
    assert hidden({"a": {key: "visible?"}}) == {"a": {key: "****"}}


@pytest.mark.parametrize(
    "key",
    [
        "max_output_tokens",
        "max_tokens",
        "token_id_capture",
        "return_token_id_information",
        "tokenizer",
        "key_metrics",
        "subset_key",
        "answer_key",
        "num_tokens",
        "eos_token",
        "keyboard",
        "tokens_per_second",
    ],
)
def test_settings_that_sound_alike_stay_visible(key):
    assert not is_secret_key(key)
    assert hidden({key: "visible"}) == {key: "visible"}


def test_lists_and_mappings_under_a_secret_key_are_masked_element_by_element():
    assert hidden({"api_key": ["a", "b"], "credentials": {"user": "u", "pins": [1, 2]}}) == {
        "api_key": ["****", "****"],
        "credentials": {"user": "****", "pins": ["****", "****"]},
    }


def test_secrets_inside_lists_are_found():
    assert hidden({"models": [{"api_key": "a", "name": "m"}]}) == {"models": [{"api_key": "****", "name": "m"}]}


def test_credentials_in_urls_are_masked_wherever_they_stand():
    assert hidden({"base_url": "https://me:pw@host:80/v1?a=b@c", "list": ["postgres://u:p@db/x"]}) == {
        "base_url": "https://****@host:80/v1?a=b@c",
        "list": ["postgres://****@db/x"],
    }


def test_other_urls_and_addresses_stay_as_they_are():
    values = {"base_url": "https://host:80/v1/users/@me", "mail": "me@host", "n": 3}
    assert hidden(values) == values


def test_what_is_not_set_is_shown_as_such():
    values = {"api_key": None, "hf_token": "", "password": "???", "use_token": True}
    assert hidden(values) == values


def test_a_reference_to_a_secret_resolves_to_the_mask():
    config = OmegaConf.create({"policy_api_key": "sk-1", "header": "Bearer ${policy_api_key}", "url": "${base}"})
    recursively_hide_secrets(config)
    assert config.header == "Bearer ****"


def test_plain_dicts_are_masked_too():
    values = {"api_key": "a", "nested": [{"token": "b"}]}
    recursively_hide_secrets(values)
    assert values == {"api_key": "****", "nested": [{"token": "****"}]}


def test_masked_yaml_leaves_the_config_alone():
    config = OmegaConf.create({"api_key": "a", "b": 1})
    assert dump_masked(config) == "api_key: '****'\nb: 1\n"
    assert config.api_key == "a"
