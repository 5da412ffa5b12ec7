# SPDX-License-Identifier: Apache-2.0
"""Rules about the sources that no linter of ours checks: who may import what, who may print, how long things get."""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from nemo_gym._util.garbage import pause_collections

ROOT = Path(__file__).parents[2]
SERVER_FOLDERS = ("resources_servers", "responses_api_agents", "responses_api_models")
OUR_FOLDERS = ("nemo_gym", *SERVER_FOLDERS)
MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 80
SPDX = "# SPDX-License-Identifier: Apache-2.0"
PRIVATE_BUT_PROMISED = {
    "nemo_gym._resolve_under_cwd_or_install",
    "nemo_gym.responses_converter._usage_detail",
    "nemo_gym.rollout_collection._get_max_rollout_attempts",
}
PRINTERS = {"nemo_gym/cli/render.py"}
# A user's home, a checkout, a scratch folder: paths that exist on one machine only.
MACHINE_PATH = re.compile(r"(?<![\w.{/:])/(?:home|Users|root|work|mnt|lustre|scratch|private)/[\w.-]+")


@cache
def sources(*folders: str) -> tuple[Path, ...]:
    return tuple(
        path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not {".venv", "__pycache__", "cache", "results"} & set(path.relative_to(ROOT).parts)
    )


def shipped(*folders: str) -> list[Path]:
    """Sources that users run: tests read as specifications and may be as long as those are."""
    return [path for path in sources(*folders) if "tests" not in path.parts]


@cache
def tree_of(path: Path) -> ast.Module:
    with pause_collections():  # what a collection ends may leave the parser of Python 3.11 with a wrong depth
        return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module or ''}.{alias.name}" for alias in node.names]
    return names


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_is_something_to_check() -> None:
    assert len(sources("nemo_gym")) > 50
    assert all(sources(folder) for folder in ("resources_servers", "responses_api_agents"))


def test_servers_import_the_contract_ring_only() -> None:
    private = [
        f"{shown(path)}: {name}"
        for path in sources(*SERVER_FOLDERS)
        for name in imported(path)
        if re.match(r"nemo_gym\.(\w+\.)*_(?!_)", name) and name not in PRIVATE_BUT_PROMISED
    ]
    assert private == []


def test_imports_are_absolute() -> None:
    relative = [
        shown(path)
        for path in sources(*OUR_FOLDERS, "tests")
        if re.search(r"\bfrom\s*\\?\s*\.", path.read_text(encoding="utf-8"))  # the others need not be parsed
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


def test_only_the_renderer_prints() -> None:
    printing = [
        f"{shown(path)}:{node.lineno}"
        for path in shipped(*OUR_FOLDERS)
        if shown(path) not in PRINTERS
        and not {"scripts", "_bench"} & set(path.parts)
        and "print" in path.read_text(encoding="utf-8")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printing == []


def test_every_file_begins_with_its_licence() -> None:
    bare = [
        shown(path)
        for path in sources(*OUR_FOLDERS, "tests", "scripts")
        if SPDX not in path.read_text(encoding="utf-8").splitlines()[: 1 + path.read_text().startswith("#!")]
    ]
    assert bare == []


def test_modules_say_what_they_are_for() -> None:
    silent = [
        shown(path) for path in shipped("nemo_gym") if tree_of(path).body and not ast.get_docstring(tree_of(path))
    ]
    assert silent in ([], ["nemo_gym/_version.py"])


@pytest.mark.parametrize("folder", OUR_FOLDERS)
def test_modules_and_functions_stay_short(folder: str) -> None:
    long = []
    for path in shipped(folder):
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > MAX_MODULE_LINES:
            long.append(f"{shown(path)}: {lines} lines")
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    long.append(f"{shown(path)}:{node.lineno} {node.name}: {length} lines")
    assert long == []


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    found = [
        f"{shown(path)}: {match}"
        for path in tracked_texts()
        for match in MACHINE_PATH.findall(path.read_text(encoding="utf-8", errors="ignore"))
    ]
    assert found == []


def tracked_texts() -> list[Path]:
    """Every text file that is or could be committed, except this one, which spells the pattern out."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        return [path for path in sources(*OUR_FOLDERS, "tests") if path != Path(__file__)]
    suffixes = {".py", ".yaml", ".yml", ".toml", ".md", ".sh", ".txt", ".cfg", ""}
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in paths if path.suffix in suffixes and path.is_file() and path != Path(__file__)]
