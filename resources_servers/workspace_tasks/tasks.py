# SPDX-License-Identifier: Apache-2.0
"""The tasks: small repositories with a bug each.

A folder below `repositories` holds `repo/` (the right code and the tests that everybody sees), `hidden_tests.py` and
`bugs.yaml`. A bug is a list of replacements in the right code, so that the right code is also the gold answer.
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
_SHARED = "checks"


class TaskError(GymError):
    """The folder of a repository does not give tasks."""


class Bug(BaseModel):
    """What is broken in a repository, and what its users say of it."""

    model_config = ConfigDict(extra="forbid")

    name: str
    difficulty: Literal["easy", "medium", "hard"]
    report: str
    changes: dict[str, list[tuple[str, str]]] = Field(min_length=1)
    """By file: texts of the right code, and what stands there instead."""


@dataclass(frozen=True)
class HiddenTests:
    """Functions that test a repository from another process, and what they take from it."""

    source: str
    names: Sequence[str]
    imports: str
    """The imports of what is tested, to be run where the repository is."""
    entry_points: Sequence[str]
    """The names that these imports define."""


@dataclass(frozen=True)
class Task:
    """A repository with a bug."""

    id: str
    difficulty: str
    report: str
    files: Mapping[str, str]
    """The repository as a program finds it."""
    gold: Mapping[str, str]
    """The files that are wrong in it, as they should be."""
    tests: HiddenTests


def load_tasks(folder: Path = REPOSITORIES) -> dict[str, Task]:
    """Return the tasks of all repositories in a folder, by id."""
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
    right = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    tests = _read_hidden_tests(folder, {name.split("/")[0].removesuffix(".py") for name in right})
    try:
        said = yaml.safe_load((folder / "bugs.yaml").read_text(encoding="utf-8"))
        bugs = TypeAdapter(list[Bug]).validate_python(said)
    except (yaml.YAMLError, ValidationError) as error:
        raise TaskError(f"{str(folder / 'bugs.yaml')!r} is no list of bugs: {error}") from error
    return [_plant(folder.name, bug, right, tests) for bug in bugs]


def _plant(repository: str, bug: Bug, right: Mapping[str, str], tests: HiddenTests) -> Task:
    files = dict(right)
    for name, replacements in bug.changes.items():
        for old, new in replacements:
            if files.get(name, "").count(old) != 1:
                raise TaskError(
                    f"bug {bug.name!r} of {repository!r} replaces what is not once in {name!r}: {old!r}\n"
                    "hint: quote more of the lines around it in bugs.yaml"
                )
            files[name] = files[name].replace(old, new)
    gold = {name: right[name] for name in bug.changes}
    return Task(f"{repository}/{bug.name}", bug.difficulty, bug.report, files, gold, tests)


def _read_hidden_tests(folder: Path, modules: set[str]) -> HiddenTests:
    """Split the hidden tests into imports of what they test, which another process runs, and the rest."""
    text = (folder / "hidden_tests.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    lines, imports, entry_points = text.splitlines(), list[str](), list[str]()
    shared = ""
    for node in tree.body:
        root = (node.module or "").split(".")[0] if isinstance(node, ast.ImportFrom) else None
        if not isinstance(node, ast.ImportFrom) or root not in {*modules, _SHARED}:
            continue
        if root == _SHARED:
            shared = (folder.parent / f"{_SHARED}.py").read_text(encoding="utf-8")
        else:
            imports.append(ast.unparse(node))
            entry_points += [one.asname or one.name for one in node.names]
        lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    names = [name for name in functions if name.startswith("test_")]
    return HiddenTests(f"{shared}\n" + "\n".join(lines), names, "\n".join(imports), entry_points)
