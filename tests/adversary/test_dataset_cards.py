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
SLOW_CARDS = {
    "many folders": card(f"['{'**/' * 300}x.jsonl']"),
    "many stars": card(f"['{'*a' * 200}b.jsonl']"),
    "both": card(f"['{'**/*a*a*a*a/' * 40}x.jsonl']"),
    "a huge set": card(f"['[{'a-z' * 300}]*[{'!b' * 100}]x.jsonl']"),
    "an open set": card("['[[[[[[[[[[[[[[[[x.jsonl']"),
    "a range backwards": card("['[z-a]x.jsonl']"),
    "a pattern too long": card(f"['{'*a' * 5000}']"),
    "many patterns": card(f"[{', '.join(f'*{n}.jsonl' for n in range(20_000))}]"),
    "a list of lists": card("[*long, *long, *long]", f"long: &long [{', '.join(['b*.jsonl'] * 20_000)}]"),
    "aliases of aliases": card("*x39", f"x0: &x0 [lol]\n{ALIASES}"),
    "aliases of aliases as a path": card("[{split: a, path: [*x39]}]", f"x0: &x0 [lol]\n{ALIASES}"),
    "aliases of aliases as a split": card("[{split: *x39, path: a}]", f"x0: &x0 [lol]\n{ALIASES}"),
    "merges of merges": card("[b.jsonl]", f"y0: &y0 {{a: b}}\n{MERGES}"),
    "a list of itself": card("&a [{path: *a}]"),
    "nested deeply": card("[" * 20_000),
    "a number": card(f"[{{split: {'9' * 10_000}, path: a.jsonl}}]"),
    "a date": card("[{split: 2024-99-99, path: gone.jsonl}]"),
    "no end": "---" + "\n" * 1_000_000,
    "many ends": "---\n" + ("---" + " " * 200 + "x\n") * 5000,
    "large": card("[b.jsonl]", "x: [" + "y, " * 2_000_000 + "]"),
}


@pytest.mark.fault(
    place="Dataset of somebody else",
    fault="Patterns or YAML of its card that take exponential time: `**/**/…`, sets, aliases, merges, deep nesting",
    outcome="They are matched in no time, or refused with an error that names the dataset.",
)
@pytest.mark.parametrize("what", SLOW_CARDS)
def test_no_card_hangs_or_crashes_what_reads_it(what):
    paths = [f"{LONG}/{LONG}/{'a/' * 200}y.jsonl", *(f"{'a/' * n}{LONG}.jsonl" for n in range(60)), "b.jsonl"]
    said, splits = "'org/set'", dict[str, list[str]]()
    try:
        splits = assign_splits("org/set", paths, SLOW_CARDS[what])
    except HubError as error:
        said = str(error)
    assert "'org/set'" in said
    assert len(said) < 10_000
    assert {path for files in splits.values() for path in files} <= set(paths)


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
