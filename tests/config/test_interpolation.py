# SPDX-License-Identifier: Apache-2.0
"""What a config has no value for: `???`, and interpolations that lead nowhere or round in circles."""

import pytest
from omegaconf import OmegaConf

from nemo_gym._config.interpolation import check_interpolations, check_missing_values, read_values
from nemo_gym.errors import ConfigInterpolationError, ConfigMissingValuesError


def check_missing(values):
    check_missing_values(read_values(OmegaConf.create(values))).raise_if_any()


def raise_on_bad_interpolations(values):
    config = OmegaConf.create(values)
    check_interpolations(config, read_values(config)).raise_if_any()


def test_a_complete_config_reads_as_its_resolved_values():
    config = OmegaConf.create({"a": "${b.c}", "b": {"c": [1, "x${d}"]}, "d": 2, "e": None})
    values = read_values(config)
    assert values.plain == {"a": [1, "x2"], "b": {"c": [1, "x2"]}, "d": 2, "e": None}
    assert not values.holes


def test_every_missing_value_is_listed_at_once_with_an_override_for_it():
    with pytest.raises(ConfigMissingValuesError) as error:
        check_missing({"a": {"b": "???"}, "c": ["x", {"d": "???"}], "e": "???"})
    text = str(error.value)
    assert "3 mandatory values are missing" in text
    for part in ("  a.b\n", "  c[1].d\n", "  e\n", "'++a.b=<value>'", "'++e=<value>'"):
        assert part in text


def test_a_key_that_refers_to_a_missing_value_is_not_reported_besides():
    values = read_values(OmegaConf.create({"a": "${b}", "b": "???", "c": "${d}", "d": {"e": "???"}}))
    assert values.missing == [("b",), ("d", "e")]
    assert not values.broken
    assert values.holes == {("a",), ("b",), ("c", "e"), ("d", "e")}


def test_an_interpolation_to_nothing_names_both_keys_the_nearest_and_an_override():
    with pytest.raises(ConfigInterpolationError) as error:
        raise_on_bad_interpolations({"model": {"url": "${policy_base_ulr}"}, "policy_base_url": "x"})
    text = str(error.value)
    for part in ("'model.url'", "'policy_base_ulr'", "Did you mean 'policy_base_url'?", "'++policy_base_ulr=<value>'"):
        assert part in text


def test_keys_that_refer_to_the_same_absent_key_are_reported_together():
    with pytest.raises(ConfigInterpolationError) as error:
        raise_on_bad_interpolations({"a": "${x}", "b": ["${x}"], "c": "${y}"})
    assert "2 keys refer to `${x}`" in str(error.value)
    assert "'b[0]'" in str(error.value)
    assert "'c' refers to `${y}`" in str(error.value)


@pytest.mark.parametrize(
    ("values", "circle"),
    [
        ({"a": "${b}", "b": "${a}"}, "a -> b -> a"),
        ({"z": "${a}", "a": "${b}", "b": "${c}", "c": "${a}"}, "a -> b -> c -> a"),
        ({"a": "x${b}", "b": "y${a}"}, "a -> b -> a"),
        ({"a": "${a}"}, "a -> a"),
        ({"a": {"b": "${a}"}}, "a.b -> a"),
        ({"a": {"b": "${c}"}, "c": {"d": "${a}"}}, "a.b -> c"),
    ],
)
def test_a_circle_of_interpolations_is_named(values, circle):
    with pytest.raises(ConfigInterpolationError, match="form a circle") as error:
        raise_on_bad_interpolations(values)
    assert circle in str(error.value)


def test_a_circle_is_reported_once():
    with pytest.raises(ConfigInterpolationError) as error:
        raise_on_bad_interpolations({"a": "${b}", "b": "${c}", "c": "${a}"})
    assert str(error.value).count("form a circle") == 1


def test_an_environment_variable_that_is_not_set_is_named(monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(ConfigInterpolationError, match=r"'a' reads the environment variable 'SOME_KEY'"):
        raise_on_bad_interpolations({"a": "${oc.env:SOME_KEY}"})
    raise_on_bad_interpolations({"a": "${oc.env:SOME_KEY,default}"})


def test_an_unknown_resolver_is_named():
    with pytest.raises(ConfigInterpolationError, match=r"'a' is \$\{nope:1\}, but there is no such resolver"):
        raise_on_bad_interpolations({"a": "${nope:1}"})


def test_going_into_a_single_value_is_reported():
    with pytest.raises(ConfigInterpolationError, match=r"'a' is \$\{b.c\}, which cannot be resolved"):
        raise_on_bad_interpolations({"a": "${b.c}", "b": 3})
