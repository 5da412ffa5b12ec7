# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nemo_gym._config.overrides import _parsed, override_token
from nemo_gym._config.plain_values import NotPlain, plain_value

ITEMS = st.one_of(
    st.text(alphabet="ab1_-./", min_size=1),
    st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=0x2FF)).map(lambda text: f"'{text}'"),
    st.integers().map(str),
    st.sampled_from(["true", "null", "NaN", "inf", "True", "${a}", "a b", "1.5", "1e3", "007", "x:y", "", " a ", "-"]),
)
LISTS = st.lists(ITEMS).map(lambda items: f"[{','.join(items)}]")


def by_the_grammar(text: str):
    return _parsed("key", text)


@given(text=st.one_of(ITEMS, LISTS, st.text(alphabet="ab1 ,'[]{}=\\.-$")))
@settings(max_examples=400, deadline=None)
@example("['a, b','c']")
@example("[a, 'b' ,c ]")
@example("['a' 'b']")
@example("[a,]")
@example("[ ]")
@example("a.yaml")
@example("--x")
def test_a_value_that_is_plain_means_what_the_grammar_says(text):
    try:
        value = plain_value("key", text)
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
    assert plain_value("some.key", text) == value


@given(text=st.text(alphabet=st.characters(exclude_characters="'\\", exclude_categories=("Cs", "Cc"))))
@settings(max_examples=100, deadline=None)
def test_what_a_flag_writes_is_plain(text):
    key, _, written = override_token("key", text).lstrip("+").partition("=")
    assert plain_value(key, written) == text


def test_a_plain_override_does_not_load_the_parser():
    code = (
        "import sys; from nemo_gym._config.overrides import parse_overrides;"
        "parse_overrides(['+config_paths=[a.yaml,b.yaml]', '++x.y=true']); print('hydra' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False"
