# SPDX-License-Identifier: Apache-2.0
"""Masking goes by what a key means: credentials are hidden, settings that merely sound alike stay visible."""

import pytest
from hypothesis import given, strategies as st
from omegaconf import OmegaConf

from nemo_gym._config.secret_lookup import dump_masked, find_secrets, is_secret_key
from nemo_gym._util import secret_names
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
        "openaiApiKey",
        "OpenAIApiKey",
        "apiKey",
        "HFToken",
        "accessToken",
        "github-pat",
        "pat",
        "pwd",
        "db.pwd",
        "connection_string",
        "connectionString",
        "sentry_dsn",
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
        "keys",
        "primary_key",
        "keyMetrics",
        "maxOutputTokens",
        "numTokens",
        "pattern",
        "path",
        "passes",
        "author",
        "compat",
    ],
)
def test_settings_that_sound_alike_stay_visible(key):
    assert not is_secret_key(key)
    assert hidden({key: "visible"}) == {key: "visible"}


CASES = [
    lambda words: "_".join(words),
    lambda words: "-".join(words),
    lambda words: "_".join(words).upper(),
    lambda words: words[0] + "".join(map(str.title, words[1:])),
    lambda words: "".join(map(str.title, words)),
]


@given(
    prefix=st.sampled_from([[], ["my"], ["open", "router"]]),
    name=st.sampled_from([["api", "key"], ["token"], ["password"], ["connection", "string"], ["private", "key"]]),
    write=st.sampled_from(CASES),
)
def test_a_secret_is_one_in_every_case_style(prefix, name, write):
    assert is_secret_key(write([*prefix, *name]))


RANDOM = "q7Xb2Zt9LmR4vN8sKd3W"


@pytest.mark.parametrize(
    "token",
    [
        "sk-proj-4fJk2l9Qe8Rt7Yu6Io5P",
        "sk-ant-api03-4fJk2l9Qe8Rt7Yu6Io5P",
        "hf_AbCdEfGhIjKlMnOpQrStUvWx",
        "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
        "github_pat_11ABCDEFG0abcdefghijkl",
        "glpat-AbCdEfGhIjKlMnOpQrSt",
        "nvapi-AbCdEfGhIjKlMnOpQrSt",
        "xoxb-1234567890-abcdefghij",
        "AKIAIOSFODNN7EXAMPLE",
        "AIzaSyA1234567890abcdefghijklmnopqrstuv",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4fw",
    ],
)
@pytest.mark.parametrize("key", ["note", "command", "keys"])
def test_a_token_is_masked_by_its_shape_under_any_name(key, token):
    assert hidden({key: token, "list": [token]}) == {key: "****", "list": ["****"]}
    assert token in find_secrets({key: token})


@pytest.mark.parametrize("key", ["keys", "key", "license", "webhook", "hooks"])
def test_a_random_value_beside_a_telling_name_is_masked_and_an_ordinary_one_is_not(key):
    assert hidden({key: RANDOM}) == {key: "****"}
    assert hidden({key: [RANDOM, "question"]}) == {key: ["****", "question"]}
    for plain in ("question", "expected_answer_of_row", "2026-11-18T10:00:00", "resources_servers/mcqa"):
        assert hidden({key: plain}) == {key: plain}


@pytest.mark.parametrize(
    "value", ["nvidia/Nemotron-RL-agent-calendar", "sk-learn", "Qwen3-30B-A3B-Instruct-2507", RANDOM]
)
def test_an_ordinary_value_under_an_ordinary_name_stays_visible(value):
    assert hidden({"dataset": value}) == {"dataset": value}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://hooks.slack.com/services/T01/B02/{RANDOM}", "https://hooks.slack.com/services/T01/B02/****"),
        (f"https://discord.com/api/webhooks/1234/{RANDOM}", "https://discord.com/api/webhooks/1234/****"),
        (f"https://x.org/hook?token={RANDOM}", "https://x.org/hook?token=****"),
        ("https://example.org/hooks/deploy", "https://example.org/hooks/deploy"),
    ],
)
def test_the_token_of_a_webhook_is_masked(url, shown):
    assert hidden({"notify": url}) == {"notify": shown}


@pytest.mark.parametrize("key", ["headers", "default_headers", "extraHeaders", "header"])
def test_no_header_is_shown_and_those_that_let_in_are_known(key):
    headers = {"X-Team": "research", "X-Session": RANDOM, "Cookie": "a=b1c2d3"}
    assert hidden({key: headers}) == {key: dict.fromkeys(headers, "****")}
    assert set(find_secrets({key: headers})) == {RANDOM, "a=b1c2d3"}


def test_keys_that_the_config_marks_are_secret_everywhere(monkeypatch):
    monkeypatch.setattr(secret_names, "_MARKED", set())
    config = {"secret_keys": ["tenant_id"], "tenant_id": "acme-4711", "server": {"tenantId": "acme-4712"}}
    assert set(find_secrets(config)) == {"acme-4711", "acme-4712"}
    assert hidden(config) == {"secret_keys": ["tenant_id"], "tenant_id": "****", "server": {"tenantId": "****"}}


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
