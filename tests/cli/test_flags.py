# SPDX-License-Identifier: Apache-2.0
import os

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._config.command_flags import Flag
from nemo_gym._config.overrides import parse_overrides
from nemo_gym.cli.command_table import GROUPS
from nemo_gym.cli.flags import Command, Positional, UsageError, to_overrides
from tests.support.catalog import write_config

START = GROUPS["env"]["start"]
SAMPLE = Command(
    "nowhere:at_all",
    "",
    "nowhere:Settings",
    (
        Flag("--storage", "storage", "", "value", choices=("hf", "gitlab")),
        Flag("--revision", "version", "", "value", also=("revision",)),
        Flag("--reward-range", "reward_range", "", "number", count=2),
        Flag("--lower-is-better", "higher_is_better", "", "switch", constant="false"),
        Flag("--resources-server", "resources_servers", "", "entrypoint"),
        Flag("--limit", "limit", "", "number"),
        Flag("--output", "output", "", "value", short="-o"),
        Flag("--option", "options", "", "value", many=True),
    ),
)
ONE = Command("nowhere:at_all", "", "nowhere:Settings", (), (Positional("FILE", "file", ""),))
TYPE_AND_QUERY = Command(
    "nowhere:at_all",
    "",
    "nowhere:Settings",
    (),
    (Positional("TYPE", "type", "", optional=True, choices=("a", "b")), Positional("QUERY", "query", "")),
)
MANY = Command("nowhere:at_all", "", "nowhere:Settings", (), (Positional("FILE", "files", "", many=True),))
TEXT = st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc")), min_size=1)


def values(*tokens: str, command: Command = START) -> dict:
    return parse_overrides(to_overrides(command, list(tokens))).values


@given(TEXT.filter(lambda text: not text.startswith("-")))
@settings(max_examples=50, deadline=None)
def test_any_text_survives_as_the_value_of_a_flag(text):
    assert values("--model", text) == {"policy_model_name": text}
    assert values(f"--model={text}") == {"policy_model_name": text}


@given(TEXT)
@settings(max_examples=50, deadline=None)
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


# --- names into config files ------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEMO_GYM_EXTRA_ROOTS", raising=False)
    monkeypatch.setattr("sys.path", [])
    for name in (
        "benchmarks/aime24/config.yaml",
        "benchmarks/aime24/hard.yaml",
        "benchmarks/aime24/easy.yaml",
        "benchmarks/aime24/easy/config.yaml",
        "benchmarks/suite/long_name/config.yaml",
        "benchmarks/suite/one/config.yaml",
        "environments/chess/config.yaml",
        "resources_servers/math/configs/math.yaml",
        "resources_servers/math/configs/proofs.yaml",
        "resources_servers/odd/configs/even.yaml",
        "responses_api_models/local/configs/local.yaml",
    ):
        write_config(tmp_path, name, "{}")
    return tmp_path


def config_paths(*tokens: str) -> list[str]:
    return values(*tokens)["config_paths"]


def complaint(*tokens: str) -> str:
    with pytest.raises(UsageError) as caught:
        to_overrides(START, list(tokens))
    return str(caught.value)


@pytest.mark.parametrize(
    ("flag", "value", "path"),
    [
        ("--benchmark", "aime24", "benchmarks/aime24/config.yaml"),
        ("--benchmark", "aime24/hard", "benchmarks/aime24/hard.yaml"),
        ("--benchmark", "aime24/easy", "benchmarks/aime24/easy/config.yaml"),
        ("--benchmark", "suite/one", "benchmarks/suite/one/config.yaml"),
        ("--environment", "chess", "environments/chess/config.yaml"),
        ("--resources-server", "math", "resources_servers/math/configs/math.yaml"),
        ("--resources-server", "math/proofs", "resources_servers/math/configs/proofs.yaml"),
        ("--model-type", "local", "responses_api_models/local/configs/local.yaml"),
    ],
)
def test_a_name_stands_for_a_config_file(root, flag, value, path):
    assert config_paths(flag, value) == [path]


def test_all_of_them_make_one_list_in_a_fixed_order(root):
    tokens = ["+config_paths=[last.yaml]", "--model-type", "local", "--environment", "chess", "--benchmark", "aime24"]
    assert config_paths(*tokens, "--resources-server", "math", "--config", "a.yaml", "--config", "b.yaml") == [
        "a.yaml",
        "b.yaml",
        "benchmarks/aime24/config.yaml",
        "environments/chess/config.yaml",
        "resources_servers/math/configs/math.yaml",
        "responses_api_models/local/configs/local.yaml",
        "last.yaml",
    ]


@pytest.mark.parametrize(
    ("flag", "value", "implied", "meant"),
    [
        ("--benchmark", "aime24x", "benchmarks/aime24x/config.yaml", "aime24"),
        ("--benchmark", "aime24/herd", "benchmarks/aime24/herd.yaml", "aime24/hard"),
        ("--benchmark", "suite", "benchmarks/suite/config.yaml", "suite/one"),
        ("--environment", "ches", "environments/ches/config.yaml", "chess"),
        ("--resources-server", "mth", "resources_servers/mth/configs/mth.yaml", "math"),
        ("--resources-server", "math/prufs", "resources_servers/math/configs/prufs.yaml", "math/proofs"),
        ("--resources-server", "odd", "resources_servers/odd/configs/odd.yaml", "odd/even"),
        ("--model-type", "lokal", "responses_api_models/lokal/configs/lokal.yaml", "local"),
    ],
)
def test_a_name_that_is_not_there_names_the_file_the_nearest_name_and_where_it_looked(
    root, flag, value, implied, meant
):
    text = complaint(flag, value)
    assert text.startswith(f"{flag} {value}: there is no {implied}. Did you mean {meant!r}?")
    assert f"looked in: {root / implied.split('/')[0]}" in text


def test_a_name_like_none_is_told_where_the_names_are(root):
    assert "`gym list benchmarks`" in complaint("--benchmark", "zzz")
    assert "--config takes a path" in complaint("--benchmark", "./zzz.yaml")


def test_search_dirs_come_first_in_their_order_and_before_the_known_roots(root, monkeypatch, tmp_path):
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", "/known")
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        write_config(folder, "benchmarks/new/config.yaml", "{}")
    assert config_paths("--search-dir", str(first), "--benchmark", "new", "--search-dir", str(second))
    assert os.environ["NEMO_GYM_EXTRA_ROOTS"].split(os.pathsep) == [str(first), str(second), "/known"]


def test_an_earlier_root_wins_and_says_what_it_hides(root, tmp_path, capsys):
    write_config(tmp_path / "mine", "environments/chess/config.yaml", "{}")
    assert config_paths("--search-dir", str(tmp_path / "mine"), "--environment", "chess")
    err = capsys.readouterr().err
    assert f"using {tmp_path / 'mine' / 'environments/chess/config.yaml'}" in err
    assert f"hides {root / 'environments/chess/config.yaml'}" in err


def test_a_search_dir_that_is_not_there_is_refused(root):
    assert complaint("--search-dir", "nowhere") == "--search-dir nowhere: there is no such folder"


@pytest.mark.parametrize(
    "command",
    [("env", "start"), ("env", "validate"), ("env", "prefetch"), ("eval", "run"), ("eval", "reverify")],
)
def test_every_command_that_reads_a_config_takes_every_selector(root, command):
    group, name = command
    flags = {flag.name for flag in GROUPS[group][name].flags}
    assert {"--config", "--benchmark", "--environment", "--resources-server", "--model-type", "--search-dir"} <= flags


def test_a_flag_that_may_be_repeated_gathers_its_values():
    assert values("--option", "a=1", "--limit=2", "--option=b, c", command=SAMPLE) == {
        "options": ["a=1", "b, c"],
        "limit": 2,
    }
    assert values("--option", "a=1", command=SAMPLE) == {"options": ["a=1"]}
