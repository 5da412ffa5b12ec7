# SPDX-License-Identifier: Apache-2.0
"""The tasks: small repositories with a bug each.

A folder below `repositories` holds `repo/` (the correct code and the visible tests), `hidden_tests.py` and `bugs.yaml`.
A bug is a list of replacements in the correct code, so the correct code is also the gold answer.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from nemo_gym.errors import GymError

REPOSITORIES = Path(__file__).parent / "repositories"
_SHARED_MODULE = "checks"


class TaskError(GymError):
    """A repository folder cannot be turned into tasks."""


class Bug(BaseModel):
    """What is broken in a repository, and what its users report."""

    model_config = ConfigDict(extra="forbid")

    name: str
    difficulty: Literal["easy", "medium", "hard"]
    report: str
    changes: dict[str, list[tuple[str, str]]] = Field(min_length=1)
    """By file: pairs of correct text and its broken replacement."""


@dataclass(frozen=True)
class HiddenTests:
    """Functions that test a repository from another process, and what they import from it."""

    source: str
    names: Sequence[str]
    imports: str
    """The imports of the code under test, to run in the repository's process."""
    entry_points: Sequence[str]
    """The names that these imports define."""


@dataclass(frozen=True)
class Task:
    """A repository with a bug."""

    id: str
    difficulty: str
    report: str
    files: Mapping[str, str]
    """The repository with its bug."""
    gold: Mapping[str, str]
    """The broken files, corrected."""
    tests: HiddenTests


def load_tasks(folder: Path = REPOSITORIES) -> dict[str, Task]:
    """Return the tasks of all repositories in `folder`, by id."""
    tasks = [task for path in sorted(folder.glob("*/bugs.yaml")) for task in _load_repository(path.parent)]
    if not tasks:
        raise TaskError(
            f"there are no tasks in {str(folder)!r}.\n"
            "hint: a repository is a folder with repo/, hidden_tests.py and bugs.yaml"
        )
    return {task.id: task for task in tasks}


def _load_repository(folder: Path) -> list[Task]:
    root = folder / "repo"
    paths = sorted(path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    correct = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    tests = _read_hidden_tests(folder, {name.split("/")[0].removesuffix(".py") for name in correct})
    try:
        entries = yaml.safe_load((folder / "bugs.yaml").read_text(encoding="utf-8"))
        bugs = TypeAdapter(list[Bug]).validate_python(entries)
    except (yaml.YAMLError, ValidationError) as error:
        raise TaskError(f"{str(folder / 'bugs.yaml')!r} is not a list of bugs: {error}") from error
    return [_plant_bug(folder.name, bug, correct, tests) for bug in bugs]


def _plant_bug(repository: str, bug: Bug, correct: Mapping[str, str], tests: HiddenTests) -> Task:
    files = dict(correct)
    for name, replacements in bug.changes.items():
        for old, new in replacements:
            if files.get(name, "").count(old) != 1:
                raise TaskError(
                    f"bug {bug.name!r} of {repository!r} replaces text that is not in {name!r} exactly once: {old!r}\n"
                    "hint: quote more of the surrounding lines in bugs.yaml"
                )
            files[name] = files[name].replace(old, new)
    gold = {name: correct[name] for name in bug.changes}
    return Task(f"{repository}/{bug.name}", bug.difficulty, bug.report, files, gold, tests)


def _read_hidden_tests(folder: Path, modules: set[str]) -> HiddenTests:
    """Split the hidden tests into imports of the code under test, which another process runs, and the rest."""
    text = (folder / "hidden_tests.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    lines = text.splitlines()
    imports = list[str]()
    entry_points = list[str]()
    shared = ""
    for node in tree.body:
        root = (node.module or "").split(".")[0] if isinstance(node, ast.ImportFrom) else None
        if not isinstance(node, ast.ImportFrom) or root not in {*modules, _SHARED_MODULE}:
            continue
        if root == _SHARED_MODULE:
            shared = (folder.parent / f"{_SHARED_MODULE}.py").read_text(encoding="utf-8")
        else:
            imports.append(ast.unparse(node))
            entry_points += [one.asname or one.name for one in node.names]
        lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    names = [name for name in functions if name.startswith("test_")]
    return HiddenTests(f"{shared}\n" + "\n".join(lines), names, "\n".join(imports), entry_points)
