# SPDX-License-Identifier: Apache-2.0
"""Overrides of the command line: Hydra's grammar, last one wins, and errors a user can act on."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from nemo_gym._config.overrides import (
    NotPlain,
    _parse_by_grammar,
    is_override,
    override_token,
    parse_overrides,
    read_plain_value,
)
from nemo_gym.errors import ConfigError

few = settings(max_examples=40, deadline=None)

texts = st.text(st.characters(codec="utf-8", exclude_characters="$\x00", exclude_categories=("Cs",)), max_size=12)
keys = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False), texts
)
nested = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=8,
)


def values(*tokens: str) -> dict[str, Any]:
    return parse_overrides(tokens).values


@few
@given(value=nested)
def test_a_written_override_reads_back_as_the_same_value(value):
    read = values(override_token("key", value))["key"]
    assert read == value
    assert type(read) is type(value)


@few
@given(path=st.lists(keys, min_size=1, max_size=4).filter(lambda path: path[0] != "hydra"), value=st.integers())
def test_a_dotted_key_nests(path, value):
    read: Any = values(f"+{'.'.join(path)}={value}")
    for key in path:
        read = read[key]
    assert read == value


@pytest.mark.parametrize("sign", ["", "+", "++"])
def test_all_three_forms_set_a_value_whether_or_not_it_exists(sign):
    assert values(f"{sign}a.b=1") == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("null", None),
        ("true", True),
        ("'1'", "1"),
        ("on", "on"),
        ("2024-01-31", "2024-01-31"),
        ("hello world", "hello world"),
        ("[a,b]", ["a", "b"]),
        ("{a: 1, b: [x, {y: 2}]}", {"a": 1, "b": ["x", {"y": 2}]}),
        ("'a, b = {c}'", "a, b = {c}"),
        ("${simple_weather_config_paths}", "${simple_weather_config_paths}"),
        ("${oc.env:HOME,'a, b'}", "${oc.env:HOME,'a, b'}"),
        ("https://host:8000/v1?version=2#part", "https://host:8000/v1?version=2#part"),
        ("Qwen/Qwen3-4B:latest", "Qwen/Qwen3-4B:latest"),
        ("a=b;c", "a=b;c"),
        ("???", "???"),
        ("", ""),
    ],
)
def test_values_are_read_as_hydra_reads_them_and_other_text_is_text(text, value):
    assert values(f"+key={text}") == {"key": value}


def test_the_last_of_a_repeated_key_wins():
    assert values("+limit=5", "++limit=3", "limit=4") == {"limit": 4}
    assert values("+a=1", "+a.b=2") == {"a": {"b": 2}}
    assert values("+a.b=2", "+a=1") == {"a": 1}


def test_mappings_given_twice_are_merged_and_lists_replaced():
    assert values("+a={x: 1, y: [1, 2]}", "+a={y: [3], z: {w: 1}}", "+a.z.v=2") == {
        "a": {"x": 1, "y": [3], "z": {"w": 1, "v": 2}}
    }


def test_a_deletion_takes_back_what_was_set_before_it_but_not_what_comes_after():
    parsed = parse_overrides(["+a.b=1", "+a.c=2", "~a", "+a.d=3"])
    assert parsed.values == {"a": {"d": 3}}
    assert parsed.deletions == ("a",)


def test_settings_of_hydra_itself_are_ignored():
    assert values("hydra.run.dir=/somewhere", "hydra/job_logging=disabled", "+a=1") == {"a": 1}


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("foo", "has no `=`"),
        ("=3", "expected `+key=value`"),
        ("a=1,2", "several values"),
        ("a=choice(1,2)", "several values"),
        ("a=[1,2", "1 `[` but 0 `]`"),
        ("a={b: 1", "1 `{` but 0 `}`"),
        ("a='b", "a quote (') is not closed"),
        ("a=foo(1)", "'foo' is not a function"),
        ("a@b=1", "packages"),
        ("~a=1", "a deletion has no value"),
        ("12=3", "'12' is not a key"),
        ("a='${b'", "does not begin an interpolation"),
    ],
)
def test_an_unreadable_token_is_named_with_the_reason(token, reason):
    with pytest.raises(ConfigError) as error:
        parse_overrides([token])
    assert repr(token) in str(error.value)
    assert reason in str(error.value)
    assert not is_override(token)
    for noise in ("mismatched input", "no viable alternative", "<EOF>", "token recognition", "HydraException"):
        assert noise not in str(error.value)


def test_the_hint_of_a_sweep_is_itself_a_valid_override():
    with pytest.raises(ConfigError, match=r"write `a=\[x,y\]`, for text write `a='x,y'`"):
        parse_overrides(["a=x,y"])
    assert values("a=[x,y]") == {"a": ["x", "y"]}
    assert values("a='x,y'") == {"a": "x,y"}


def test_every_unreadable_token_is_reported_at_once():
    with pytest.raises(ConfigError) as error:
        parse_overrides(["foo", "+fine=1", "b=[1"])
    assert "'foo'" in str(error.value)
    assert "'b=[1'" in str(error.value)


def test_an_unreadable_secret_is_not_shown():
    with pytest.raises(ConfigError) as error:
        parse_overrides(["+policy_api_key=sk-[very-secret"])
    assert "policy_api_key" in str(error.value)
    assert "very-secret" not in str(error.value)


ITEMS = st.one_of(
    st.text(alphabet="ab1_-./", min_size=1),
    st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=0x2FF)).map(lambda text: f"'{text}'"),
    st.integers().map(str),
    st.sampled_from(["true", "null", "NaN", "inf", "True", "${a}", "a b", "1.5", "1e3", "007", "x:y", "", " a ", "-"]),
)
LISTS = st.lists(ITEMS).map(lambda items: f"[{','.join(items)}]")


def by_the_grammar(text: str):
    return _parse_by_grammar("key", text)


@given(text=st.one_of(ITEMS, LISTS, st.text(alphabet="ab1 ,'[]{}=\\.-$")))
@settings(max_examples=150, deadline=None)
@example("['a, b','c']")
@example("[a, 'b' ,c ]")
@example("['a' 'b']")
@example("[a,]")
@example("[ ]")
@example("a.yaml")
@example("--x")
def test_a_value_that_is_plain_means_what_the_grammar_says(text):
    try:
        value = read_plain_value("key", text)
    except NotPlain:
        return
    parsed = by_the_grammar(text)
    assert (type(value), value) == (type(parsed), parsed)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'a, {b}: c = d'", "a, {b}: c = d"),
        ("resources_servers/x/configs/x.yaml", "resources_servers/x/configs/x.yaml"),
        ("[a.yaml,b.yaml]", ["a.yaml", "b.yaml"]),
        ("['a, b.yaml','c']", ["a, b.yaml", "c"]),
        ("true", True),
        ("null", None),
        ("-5", -5),
        ("[]", []),
    ],
)
def test_the_common_values_need_no_grammar(text, value):
    assert read_plain_value("some.key", text) == value


@given(text=st.text(alphabet=st.characters(exclude_characters="'\\", exclude_categories=("Cs", "Cc"))))
@settings(max_examples=50, deadline=None)
def test_what_a_flag_writes_is_plain(text):
    key, _, written = override_token("key", text).lstrip("+").partition("=")
    assert read_plain_value(key, written) == text


def test_a_plain_override_does_not_load_the_parser():
    code = (
        "import sys; from nemo_gym._config.overrides import parse_overrides;"
        "parse_overrides(['+config_paths=[a.yaml,b.yaml]', '++x.y=true']); print('hydra' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False"
