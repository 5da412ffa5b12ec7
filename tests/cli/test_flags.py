# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym._config.overrides import parse_overrides
from nemo_gym.cli.commands import GROUPS, Command, Flag, Positional
from nemo_gym.cli.flags import UsageError, to_overrides

START = GROUPS["env"]["start"]
SAMPLE = Command(
    "nowhere:at_all",
    "",
    (
        Flag("--storage", "storage", "", choices=("hf", "gitlab")),
        Flag("--revision", "version", "", also=("revision",)),
        Flag("--reward-range", "reward_range", "", "number", count=2),
        Flag("--lower-is-better", "higher_is_better", "", "switch", constant="false"),
        Flag("--resources-server", "resources_servers", "", "entrypoint"),
        Flag("--limit", "limit", "", "number"),
        Flag("--output", "output", "", short="-o"),
    ),
)
ONE = Command("nowhere:at_all", "", positionals=(Positional("FILE", "file", ""),))
TYPE_AND_QUERY = Command(
    "nowhere:at_all",
    "",
    positionals=(Positional("TYPE", "type", "", optional=True, choices=("a", "b")), Positional("QUERY", "query", "")),
)
MANY = Command("nowhere:at_all", "", positionals=(Positional("FILE", "files", "", many=True),))
TEXT = st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc")), min_size=1)


def values(*tokens: str, command: Command = START) -> dict:
    return parse_overrides(to_overrides(command, list(tokens))).values


@given(TEXT.filter(lambda text: not text.startswith("-")))
@settings(max_examples=100, deadline=None)
def test_any_text_survives_as_the_value_of_a_flag(text):
    assert values("--model", text) == {"policy_model_name": text}
    assert values(f"--model={text}") == {"policy_model_name": text}


@given(TEXT)
@settings(max_examples=100, deadline=None)
def test_any_text_survives_as_a_bare_word_behind_two_dashes(text):
    assert values("--", text, command=ONE) == {"file": text}


@pytest.mark.parametrize("text", ["a,b", "{a: 1}", "a b", "a=b", "it's", '"x"', "[x", "${y}", "", "true", "5", "null"])
def test_values_that_mean_something_to_the_grammar_are_kept_as_text(text):
    assert values("--model", text) == {"policy_model_name": text}


def test_flags_and_overrides_mix_and_the_last_wins():
    assert values("--model", "a", "+policy_model_name=b") == {"policy_model_name": "b"}
    assert values("+policy_model_name=b", "-m", "a") == {"policy_model_name": "a"}
    assert values("--limit", "5", "+limit=3", command=SAMPLE) == {"limit": 3}
    assert values("++limit=3", "--limit", "5", command=SAMPLE) == {"limit": 5}


def test_every_kind_of_flag_becomes_its_override():
    assert values("--storage", "hf", command=SAMPLE) == {"storage": "hf"}
    assert values("--revision", "0.0.1", command=SAMPLE) == {"version": "0.0.1", "revision": "0.0.1"}
    assert values("--reward-range", "-1", "1.5", command=SAMPLE) == {"reward_range": [-1, 1.5]}
    assert values("--lower-is-better", command=SAMPLE) == {"higher_is_better": False}
    assert values("--resources-server", "mine", command=SAMPLE) == {"entrypoint": "resources_servers/mine"}
    assert values("-v", command=SAMPLE) == {"verbose": True}


def test_bare_words_fill_positionals_wherever_they_stand():
    assert values("+a=1", "x.jsonl", "b=2", command=ONE) == {"a": 1, "b": 2, "file": "x.jsonl"}
    assert values("x", "y", "z", command=MANY) == {"files": ["x", "y", "z"]}
    assert values("./a=b.jsonl", command=ONE) == {"file": "./a=b.jsonl"}
    assert values("--", "a=b.jsonl", command=ONE) == {"file": "a=b.jsonl"}


def test_an_optional_word_is_left_out_first():
    assert values("x", command=TYPE_AND_QUERY) == {"query": "x"}
    assert values("a", "x", command=TYPE_AND_QUERY) == {"type": "a", "query": "x"}
    assert values(command=TYPE_AND_QUERY) == {}


@pytest.mark.parametrize(
    ("command", "tokens", "complaint"),
    [
        (SAMPLE, ["--outptu", "x"], "unknown flag '--outptu'. Did you mean '--output'?"),
        (SAMPLE, ["--zzz"], "unknown flag '--zzz'.\nhint"),
        (SAMPLE, ["--output"], "flag '--output' needs a value"),
        (SAMPLE, ["--output", "--limit", "5"], "flag '--output' needs a value, but '--limit' follows it"),
        (SAMPLE, ["--reward-range", "1"], "flag '--reward-range' needs 2 values"),
        (SAMPLE, ["--storage", "gitlub"], "--storage: 'gitlub' is not one of hf, gitlab. Did you mean 'gitlab'?"),
        (ONE, ["a", "b"], "unexpected word 'b'"),
        (TYPE_AND_QUERY, ["c", "x"], "TYPE: 'c' is not one of a, b"),
    ],
)
def test_a_wrong_command_line_is_named_with_its_place(command, tokens, complaint):
    with pytest.raises(UsageError) as caught:
        to_overrides(command, tokens)
    assert complaint in str(caught.value)
