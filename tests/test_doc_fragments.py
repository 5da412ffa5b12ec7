# SPDX-License-Identifier: Apache-2.0
"""Blocks of the documentation that no test runs, because they are parts of something or need what is not at hand.

What they name is there all the same: modules, functions and their arguments, commands and their flags, servers and
their settings. `tests/test_docs.py` runs all others.
"""

import ast
import importlib
import inspect
import json
import shlex
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pytest
import yaml

from nemo_gym import PARENT_DIR
from nemo_gym._util.search_root_finder import SERVER_TYPES
from nemo_gym.cli.flags import to_overrides

pytest.importorskip("griffe", reason="needs the group `docs`")

from nemo_gym.cli.command_table import list_commands
from scripts.reference.server_configs import find_config_class, read_keys
from tests.test_docs import BLOCK, DOCS

OUR_PACKAGES = ("nemo_gym", *SERVER_TYPES)
PAGES = [PARENT_DIR / "README.md", *sorted(DOCS.rglob("*.md"))]


def fragments(language: str) -> list[Any]:
    """The blocks of a language that are not files to write down, each with where it stands as its id."""
    return [
        pytest.param(block["text"], id=f"{page.stem}:{page.read_text()[: block.start()].count(chr(10)) + 1}")
        for page in PAGES
        for block in BLOCK.finditer(page.read_text())
        if block["language"] == language and not block["title"]
    ]


@pytest.mark.parametrize("text", fragments("python"))
def test_python_compiles_and_names_what_there_is(text: str):
    tree = compile(text, "fragment", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    imported = dict(import_ours(tree))
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in imported:
            check_arguments(imported[call.func.id], call)


def import_ours(tree: ast.AST) -> Iterator[tuple[str, Any]]:
    """What a fragment imports of our own; an import of what is not there raises."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in OUR_PACKAGES:
            module = importlib.import_module(node.module)
            yield from ((alias.asname or alias.name, getattr(module, alias.name)) for alias in node.names)


def check_arguments(function: Callable[..., Any], call: ast.Call) -> None:
    """Raise TypeError unless `function` can be called with the arguments that `call` gives."""
    given = {keyword.arg: None for keyword in call.keywords if keyword.arg}
    inspect.signature(function).bind_partial(*call.args, **given)


@pytest.mark.parametrize("text", fragments("json"))
def test_json_can_be_read(text: str):
    assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize("text", fragments("yaml"))
def test_yaml_sets_what_servers_have(text: str):
    settings = yaml.safe_load(text)
    assert isinstance(settings, dict)
    for server_type, name, block in list_servers(settings):
        if (PARENT_DIR / server_type / name).exists():
            known = {key.name for key in read_keys(find_config_class(server_type, name))}
            assert set(block) <= known, f"{name} has no {set(block) - known}"


def list_servers(settings: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for instance in settings.values():
        for server_type in SERVER_TYPES if isinstance(instance, dict) else ():
            for name, block in (instance.get(server_type) or {}).items():
                yield server_type, name, block


@pytest.mark.parametrize("text", fragments("console"))
def test_a_command_and_its_flags_are_there(text: str):
    lines = [line[2:] for line in text.replace("\\\n", " ").splitlines() if line.startswith("$ ")]
    assert lines
    for line in lines:
        words = [*dropwhile(lambda word: "=" in word, shlex.split(line, comments=True))]
        if words[0] == "gym":
            check_gym(words[1:])
        elif words[0] == "python" and words[1] == "-m":
            if words[2].partition(".")[0] in OUR_PACKAGES:
                assert find_spec(words[2]) is not None
        elif words[0] == "python":
            assert Path(PARENT_DIR, words[1]).is_file()


def check_gym(words: list[str]) -> None:
    """Raise UsageError unless there is such a command, and it takes these flags."""
    [(name, command)] = [
        found for found in list_commands().items() if words[: len(found[0].split())] == found[0].split()
    ]
    to_overrides(command, words[len(name.split()) :])
