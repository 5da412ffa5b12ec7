# SPDX-License-Identifier: Apache-2.0
"""Cards of datasets that somebody else wrote: they choose no paths on this machine, and they keep nobody waiting."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from nemo_gym._data.hub import HubError
from nemo_gym._data.hub_splits import _MOST_QUOTED, assign_splits, compile_pattern
from tests.cli.conftest import gym, ports_are_given_back  # noqa: F401  fixtures
from tests.support.fake_hub import hub as hub  # a fixture

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

ROWS = b'{"responses_create_params": {"input": "hi"}}\n'
BAD_NAMES = ["../victim", "/tmp/victim", "..", ".bashrc", "a/b", "a\\b", "a\x07b", "a\nb", "", "x" * 300, "a\u202eb"]


def card(data_files: str, more: str = "") -> str:
    return f"---\n{more}\nconfigs: [{{config_name: default, data_files: {data_files}}}]\n---\n# A dataset\n"


def quote(text: str) -> str:
    escaped = "".join(f"\\u{ord(sign):04x}" if not sign.isalnum() else sign for sign in text)
    return f'"{escaped}"'


@pytest.mark.fault(
    place="Dataset of somebody else",
    fault="Its card names a split `../victim`, an absolute path, or another name with separators or control characters",
    outcome="`gym dataset download --output-dir` names dataset and split and writes nothing; exit code 1.",
)
@pytest.mark.parametrize("name", ["../victim", "{tmp}/victim", "..\\victim", "a\x1bb"])
def test_a_card_cannot_choose_where_files_are_written(gym, hub, tmp_path, name):  # noqa: F811
    name = name.format(tmp=tmp_path)
    readme = card(f"[{{split: {quote(name)}, path: rows.jsonl}}]")
    hub.add_dataset("org/set", {"README.md": readme.encode(), "rows.jsonl": ROWS})
    victim = tmp_path / "victim.jsonl"
    victim.write_text("mine")
    said = gym("dataset", "download", "--repo-id", "org/set", "--output-dir", str(tmp_path / "out"))
    assert (said.code, said.out) == (1, "")
    assert f"the dataset 'org/set' names a split {name[:_MOST_QUOTED]!r}" in said.err
    assert "hint: " in said.err
    assert "Traceback" not in said.err
    assert "\x1b" not in said.err
    assert victim.read_text() == "mine"
    assert not [*Path(tmp_path).rglob("rows.jsonl"), *Path(tmp_path).rglob("*.download")]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_no_split_has_a_name_that_is_none_for_a_file(name):
    for data_files in (f"[{{split: {quote(name)}, path: a.jsonl}}]", f"{{{quote(name)}: a.jsonl}}"):
        with pytest.raises(HubError, match="org/set"):
            assign_splits("org/set", ["a.jsonl"], card(data_files))


@pytest.mark.parametrize("name", ["train", "train_sft", "test.v2", "dev-1", "Übung 1", "2024"])
def test_other_names_are_fine(name):
    assert assign_splits("org/set", ["a.jsonl"], card(f"[{{split: {quote(name)}, path: a.jsonl}}]")) == {
        name: ["a.jsonl"]
    }


LONG = "a" * 500
ALIASES = "\n".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 40))
MERGES = "\n".join(f"y{n}: &y{n} {{<<: [*y{n - 1}, *y{n - 1}]}}" for n in range(1, 60))
MANY_PATTERNS = "[" + ", ".join(f"'*{n}.jsonl'" for n in range(20_000)) + "]"
NO_SUCH_FILE = "but no data file has such a name"
REFUSED_CARDS = {
    "many folders": (card(f"['{'**/' * 300}x.jsonl']"), NO_SUCH_FILE),
    "many stars": (card(f"['{'*a' * 200}b.jsonl']"), NO_SUCH_FILE),
    "both": (card(f"['{'**/*a*a*a*a/' * 40}x.jsonl']"), NO_SUCH_FILE),
    "a huge set": (card(f"['[{'a-z' * 300}]*[{'!b' * 100}]x.jsonl']"), "more than 1,024 characters for the path"),
    "an open set": (card("['[[[[[[[[[[[[[[[[x.jsonl']"), NO_SUCH_FILE),
    "a range backwards": (card("['[z-a]x.jsonl']"), NO_SUCH_FILE),
    "a pattern too long": (card(f"['{'*a' * 5000}']"), "more than 1,024 characters for the path"),
    "many patterns": (card(MANY_PATTERNS), "more than 10,000 patterns"),
    "a list of lists": (
        card("[*long, *long, *long]", f"long: &long [{', '.join(['b*.jsonl'] * 20_000)}]"),
        "more than 10,000 patterns",
    ),
    "aliases of aliases": (card("*x39", f"x0: &x0 [lol]\n{ALIASES}"), "no text for the path of split 'train'"),
    "aliases of aliases as a path": (
        card("[{split: a, path: [*x39]}]", f"x0: &x0 [lol]\n{ALIASES}"),
        "no text for the path of split 'a'",
    ),
    "aliases of aliases as a split": (
        card("[{split: *x39, path: a}]", f"x0: &x0 [lol]\n{ALIASES}"),
        "no text for the name of a split",
    ),
    "a list of itself": (card("&a [{path: *a}]"), "not valid YAML"),
    "nested deeply": (card("[" * 20_000), "nested too deeply"),
    "a number": (card(f"[{{split: {'9' * 10_000}, path: a.jsonl}}]"), "more than 1,024 characters for the name"),
    "a date": (card("[{split: 2024-99-99, path: gone.jsonl}]"), NO_SUCH_FILE),
    "large": (card("[b.jsonl]", "x: [" + "y, " * 2_000_000 + "]"), "more than 524,288 characters of YAML"),
}
PATHS = [f"{LONG}/{LONG}/{'a/' * 200}y.jsonl", *(f"{'a/' * n}{LONG}.jsonl" for n in range(60)), "b.jsonl"]
TAKEN_CARDS = {
    "merges of merges": (card("[b.jsonl]", f"y0: &y0 {{a: b}}\n{MERGES}"), ["b.jsonl"]),
    "no end": ("---" + "\n" * 1_000_000, PATHS),
    "many ends": ("---\n" + ("---" + " " * 200 + "x\n") * 5000, PATHS),
}


@pytest.mark.fault(
    place="Dataset of somebody else",
    fault="Patterns or YAML of its card that take exponential time: `**/**/…`, sets, aliases, merges, deep nesting",
    outcome="They are matched in no time, or refused with an error that names the dataset.",
)
@pytest.mark.parametrize("what", REFUSED_CARDS)
def test_a_slow_card_is_refused_with_the_name_of_its_dataset(what):
    readme, reason = REFUSED_CARDS[what]
    with pytest.raises(HubError) as refused:
        assign_splits("org/set", PATHS, readme)
    said = str(refused.value)
    assert "the card of 'org/set' (README.md)" in said
    assert reason in said
    assert len(said) < 10_000


@pytest.mark.parametrize("what", TAKEN_CARDS)
def test_a_slow_card_that_names_files_gets_them(what):
    readme, files = TAKEN_CARDS[what]
    assert {name: sorted(paths) for name, paths in assign_splits("org/set", PATHS, readme).items()} == {
        "train": sorted(files)
    }


PARTS = st.lists(
    st.sampled_from(["**", "*", "a", "a*", "*b", "?", "[ab]", "[!a]", "a*b", "**b", "a**"]), min_size=1, max_size=6
)


@given(pattern=PARTS, path=st.lists(st.sampled_from(["a", "b", "ab", "aab", "c"]), min_size=1, max_size=6))
@example(pattern=["**", "a", "**", "b"], path=["a", "b", "a", "c", "b"])
def test_patterns_match_as_their_regular_expressions_do(pattern, path):
    expected = re.fullmatch(_as_regex("/".join(pattern)), "/".join(path)) is not None
    assert compile_pattern("/".join(pattern))(path) is expected


def _as_regex(pattern: str) -> str:
    """What a pattern means, in words that may take exponential time."""
    meaning = {"**/": "(?:.*/)?", "/**": "(?:/.*)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pattern = re.sub(r"(?<![^/])(\*\*/)+", "**/", pattern)
    pattern = re.sub(r"(?<![^/])\*\*/\*\*$", "**", pattern)
    tokens = re.findall(r"(?<![^/])\*\*/|/\*\*$|\*\*|\*|\?|\[[^]]*]|[^*?[]", pattern)
    return "".join(meaning.get(token) or token.replace("[!", "[^") for token in tokens)
