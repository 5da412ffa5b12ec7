# SPDX-License-Identifier: Apache-2.0
"""What the code of a server imports, read off its source: nothing is run.

A server written for upstream imports packages without naming them, because upstream's core brings them along. The extra
`upstream` of nemo-gym lists them. A server gets those that its code imports and no others: most import none, and an
environment with all of them takes a gigabyte.
"""

import ast
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nemo_gym._servers.installing.own_wheel import OwnPackage
from nemo_gym._servers.installing.requirements import RequirementLine, ServerRequirements
from nemo_gym._util.search_root_finder import SERVER_TYPES, find_server_folder, split_server_folder

_OWN_ROOT = Path(__file__).absolute().parents[3]
_DISTRIBUTIONS = {
    "fontTools": "fonttools",
    "git": "gitpython",
    "mlflow": "mlflow-skinny",
    "multipart": "python-multipart",
    "python_multipart": "python-multipart",
}
"""The packages of the extra `upstream` that are imported by another name than they are installed by."""
_NEED_MULTIPART = frozenset({"File", "Form", "UploadFile"})
"""Names of fastapi for whose sake it imports `python_multipart`."""


def add_upstream_packages(
    requirements: ServerRequirements, own: OwnPackage, *, tests: bool = False
) -> ServerRequirements:
    """Add what a folder with a line about nemo-gym imports of the extra `upstream`; `tests` counts its test suite too.

    The servers of this project name all they need.
    """
    folder = requirements.folder
    if not requirements.names_own or folder.resolve().is_relative_to(_OWN_ROOT.resolve()):
        return requirements
    brought = {canonicalize_name(one.name): one for one in _read_extra(own, "upstream")}
    named = {canonicalize_name(line.requirement.name) for line in requirements.lines if line.requirement}
    if not brought.keys() - named:
        return requirements
    files = sorted(folder.glob("*.py"))
    # The files that start a server, or all if none does: scripts that prepare data may lie beside them.
    start = [file for file in files if b"run_webserver" in file.read_bytes()] or files
    if tests:
        start += (folder / "tests").rglob("*.py")
    root, _ = split_server_folder(folder)
    imported = {_DISTRIBUTIONS.get(name, name) for name in find_imported_packages(start, [root, _OWN_ROOT])}
    wanted = sorted(brought.keys() & imported - named)
    return replace(
        requirements, implied=tuple(RequirementLine("package", str(brought[name]), brought[name]) for name in wanted)
    )


def find_imported_packages(start: Iterable[Path], roots: Sequence[Path]) -> set[str]:
    """Return the top-level modules that the files `start` import, and the server code that they import in turn."""
    todo = list(start)
    packages = set[str]()
    seen = set[Path]()
    beside = list(dict.fromkeys(file.parent for file in todo))
    while todo:
        file = todo.pop()
        if file in seen:
            continue
        seen.add(file)
        for level, parts in _read_imports(file):
            if level:
                found = _list_module_files(file.parents[level - 1], parts)
            elif parts[0] in SERVER_TYPES:
                folder = None
                if len(parts) > 1:
                    folder = find_server_folder(parts[0], parts[1], roots)
                found = _list_module_files(folder, parts[2:]) if folder else []
            else:
                found = next(filter(None, (_list_module_files(place, parts) for place in (file.parent, *beside))), [])
            todo += found
            if not found and not level:
                packages.add(parts[0])
            if parts[0] == "fastapi" and parts[-1] in _NEED_MULTIPART:
                packages.add("multipart")
    return packages


def imports_package(folder: Path, package: str) -> bool:
    """Tell whether the code in `folder` imports `package`; tests do not count."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in ("tests", "data") and not name.startswith((".", "__"))]
        for path in (Path(place, name) for name in files if name.endswith(".py")):
            if package.encode() in path.read_bytes() and package in _absolute_imports(path):
                return True
    return False


def find_bare_neighbor(entrypoint: Path) -> str | None:
    """Return the first module beside `entrypoint` that it imports as if it were installed."""
    for name in _absolute_imports(entrypoint):
        beside = entrypoint.parent / name
        if beside.with_suffix(".py").is_file() or (beside / "__init__.py").is_file():
            return name
    return None


def _absolute_imports(file: Path) -> Iterator[str]:
    return (parts[0] for level, parts in _read_imports(file) if not level)


def _read_extra(own: OwnPackage, extra: str) -> Iterator[Requirement]:
    for text in HeaderParser().parsestr(own.metadata).get_all("Requires-Dist", []):
        requirement = Requirement(text)
        if requirement.marker and "extra" in str(requirement.marker) and requirement.marker.evaluate({"extra": extra}):
            requirement.marker = None
            yield requirement


def _read_imports(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield what `file` imports anywhere: the number of leading dots and the parts of the name."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # importing it will say so, with file and line
    for node in _walk_executed_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module.split(".") if node.module else []
            # What is imported from a package may be a module of it.
            yield from ((node.level, [*module, alias.name]) for alias in node.names)


def _walk_executed_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every node but those that only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from _walk_executed_nodes(child)


def _list_module_files(place: Path, parts: Sequence[str]) -> list[Path]:
    """Return the source files that importing the module `parts` from `place` runs, packages on the way included."""
    found = []
    for part in parts:
        place = place / part
        found += [file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]
    return found
