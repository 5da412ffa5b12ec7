# SPDX-License-Identifier: Apache-2.0
"""What the folder of a server asks for (`requirements.txt` or `pyproject.toml`), and whether that is already installed.

Nothing is installed or resolved here; uv reads the same files itself. Lines about nemo-gym are set apart: every
environment has the nemo-gym that is running, whatever they say.
"""

import importlib.metadata
import os
import platform
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

from nemo_gym._util.search_root_finder import split_server_folder
from nemo_gym.errors import ConfigError

OWN_NAME = canonicalize_name("nemo-gym")

FindDistribution = Callable[[str], importlib.metadata.Distribution | None]

_INCLUDE = re.compile(r"(?P<how>-r|--requirements?|-c|--constraints?)(?:\s*=\s*|\s+|(?<=^-[rc]))(?P<file>\S.*)$")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s*=\s*|\s+)(?P<what>\S.*)$")
_FIND_LINKS = re.compile(r"(?:-f|--find-links)(?:\s*=\s*|\s+)(?P<place>\S.*)$")
_ARCHIVES = (".whl", ".tar.gz", ".zip")
_PER_LINE_OPTION = re.compile(r"\s--(hash|config-settings?|global-option)\b.*$")


@dataclass(frozen=True)
class RequirementLine:
    """One line, in a form that is equal for equal meaning."""

    kind: Literal["package", "elsewhere", "option"]
    """A package known by name and version; something fetched by path or URL; a word to the installer."""
    text: str
    requirement: Requirement | None = None
    local: Path | None = None
    """The file or folder that an `elsewhere` line installs."""
    constraint: bool = False
    """Says which version is right if the package is there, not that it must be."""


@dataclass(frozen=True)
class ServerRequirements:
    """What a server folder asks for, apart from nemo-gym itself."""

    folder: Path
    source: Path | None
    """The file that says it; None for a folder that asks for nothing."""
    lines: tuple[RequirementLine, ...] = ()
    overrides_file: Path | None = None
    overrides: tuple[RequirementLine, ...] = ()
    own_extras: frozenset[str] = frozenset()
    """The extras of nemo-gym that are asked for, `dev` in `-e nemo-gym[dev] @ ../../`."""
    names_own: bool = False
    """A line says that it needs nemo-gym."""
    implied: tuple[RequirementLine, ...] = ()
    """Packages that no line names: those that upstream's core brings along, and those of a server instance."""
    package: NormalizedName | None = None
    """The folder's own package, where its pyproject.toml builds one."""
    requires_python: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The lines in a form that is equal for equal requirements: options in their order, the rest sorted."""
        return (
            *(line.text for line in self.lines if line.kind == "option"),
            *sorted({line.text for line in self.lines if line.kind != "option" and not line.constraint}),
            *sorted({f"constraint {line.text}" for line in self.lines if line.kind != "option" and line.constraint}),
            *sorted({f"override {line.text}" for line in self.overrides}),
            *(f"implied {line.text}" for line in self.implied),
        )


def read_requirements(folder: Path) -> ServerRequirements:
    """Read the requirements of the server in `folder`."""
    source, project = _find_source(folder)
    if source is None:
        return ServerRequirements(folder, None)
    if project is not None:
        lines = _read_project_lines(source, project, folder)
    else:
        lines = list(_read_lines(source, folder, ()))
    overrides_file = folder / "overrides.txt"
    overrides = []
    if overrides_file.is_file():
        overrides = list(_read_lines(overrides_file, folder, ()))
    overrides += [_parse_line(text, folder) for text in _uv_table(project or {}).get("override-dependencies", [])]
    own = [line for line in lines if _is_own(line, folder)]
    return ServerRequirements(
        folder=folder,
        source=source,
        lines=tuple(line for line in lines if line not in own),
        overrides_file=overrides_file if overrides_file.is_file() else None,
        overrides=tuple(line for line in overrides if not _is_own(line, folder)),
        names_own=bool(own),
        own_extras=frozenset(extra for line in own for extra in _own_extras(line)),
        package=_read_package_name(project) if project is not None else None,
        requires_python=(project or {}).get("project", {}).get("requires-python"),
    )


def add_lines(requirements: ServerRequirements, texts: Iterable[str]) -> ServerRequirements:
    """Return `requirements` with more packages, which no file of the folder names."""
    lines = [_parse_line(text, requirements.folder) for text in texts]
    if option := next((line.text for line in lines if line.kind == "option"), None):
        raise ConfigError(
            f"{option!r} is no package, so that it can't be among the `requirements` of a server.\n"
            "hint: name packages and paths there; options belong into a requirements.txt"
        )
    return replace(requirements, implied=(*requirements.implied, *lines))


def find_installed(name: str) -> importlib.metadata.Distribution | None:
    """Return the package called `name` in the running environment."""
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def find_unmet(
    requirements: ServerRequirements,
    *,
    dev: bool = False,
    more: Iterable[str] = (),
    find: FindDistribution = find_installed,
) -> str | None:
    """Return why the running environment does not do for this server; None if it does.

    The `dev` extra of nemo-gym is for test suites: it counts as met unless `dev` says that it is needed. `more` are
    requirements of all servers.
    """
    if requirements.requires_python and not _allows(requirements.requires_python, platform.python_version()):
        return f"Python {platform.python_version()} does not satisfy {requirements.requires_python}"
    if requirements.package and find(requirements.package) is None:
        return f"its own package {requirements.package!r} is not installed"
    extras = requirements.own_extras if dev else requirements.own_extras - {"dev"}
    wanted = [
        *_apply_overrides(requirements),
        *(RequirementLine("package", "", Requirement(f"{OWN_NAME}[{name}]")) for name in extras),
    ]
    wanted += [_parse_line(text, requirements.folder) for text in more]
    return next((reason for line in wanted if (reason := _explain_unmet_line(line, find))), None)


def _apply_overrides(requirements: ServerRequirements) -> Iterator[RequirementLine]:
    """Yield the lines as the installer sees them: an override takes the place of every line about the same package."""
    overridden = {canonicalize_name(line.requirement.name) for line in requirements.overrides if line.requirement}
    asked = set()
    for line in (*requirements.lines, *requirements.implied):
        name = canonicalize_name(line.requirement.name) if line.requirement else None
        asked.add(name)
        if name not in overridden:
            yield line
    for line in requirements.overrides:
        name = canonicalize_name(line.requirement.name) if line.requirement else None
        yield replace(line, constraint=name not in asked)


def _explain_unmet_line(line: RequirementLine, find: FindDistribution) -> str | None:
    if line.kind == "option":
        return None
    if line.requirement is None:
        return "it installs from a path or URL"
    if line.requirement.marker and not line.requirement.marker.evaluate({"extra": ""}):
        return None
    if line.constraint and find(line.requirement.name) is None:
        return None
    if line.kind == "elsewhere":
        return f"{line.requirement.name} comes from a path or URL"
    return _explain_unmet(line.requirement, "", find, frozenset())


def _explain_unmet(requirement: Requirement, extra: str, find: FindDistribution, above: frozenset[str]) -> str | None:
    """Return why `requirement` (asked for by `extra` of another package) is not met, its own extras included."""
    if str(requirement) in above or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
        return None
    distribution = find(requirement.name)
    if distribution is None:
        return f"{requirement.name}{requirement.specifier} is not installed"
    if not requirement.specifier.contains(distribution.version, prereleases=True):
        return f"{requirement.name} {distribution.version} does not satisfy {requirement.specifier}"
    for name in requirement.extras:
        for dependency in map(Requirement, distribution.requires or ()):
            # The others came with the package; those with an extra came only if somebody asked for it.
            if "extra" in str(dependency.marker or ""):
                reason = _explain_unmet(dependency, name, find, above | {str(requirement)})
                if reason:
                    return f"{reason} (asked for by {requirement.name}[{name}])"
    return None


def _allows(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def _find_source(folder: Path) -> tuple[Path | None, dict[str, Any] | None]:
    """Return the file to read and, if it is a pyproject.toml, its content."""
    listing = folder / "requirements.txt"
    manifest = folder / "pyproject.toml"
    # A pyproject.toml without [project] configures tools; it asks for nothing.
    project = _read_toml(manifest) if manifest.is_file() else {}
    if listing.is_file() and "project" in project:
        raise ConfigError(
            f"the server in {str(folder)!r} has both a requirements.txt and a pyproject.toml with a [project] table; "
            "which of them counts is not clear.\nhint: keep one of the two"
        )
    if listing.is_file():
        return listing, None
    if "project" in project:
        return manifest, project
    if (folder / "app.py").is_file():
        return None, None
    raise ConfigError(
        f"{str(folder)!r} is not the folder of a server: it has neither a requirements.txt, nor a pyproject.toml with "
        "a [project] table, nor an app.py.\n"
        "hint: add a requirements.txt; one that needs no packages of its own holds the line "
        "`-e nemo-gym[dev] @ ../../`"
    )


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} is not valid TOML: {error}\nhint: correct it at the place named") from error


def _read_lines(path: Path, folder: Path, above: tuple[Path, ...]) -> Iterator[RequirementLine]:
    """Yield the lines of a requirements file and of the files it includes."""
    if path.resolve() in above:
        return
    for number, text in _join_lines(path):
        include = _INCLUDE.match(text)
        if include is None:
            yield _parse_line(text, folder)
            continue
        if "://" in include["file"]:
            yield RequirementLine("elsewhere", text)
            continue
        included = path.parent / include["file"].strip("'\"")
        if not included.is_file():
            raise ConfigError(
                f"{str(path)!r}, line {number} includes {include['file']!r}, but there is no file {str(included)!r}.\n"
                "hint: paths of included files start from the folder of the file that includes them"
            )
        for line in _read_lines(included, folder, (*above, path.resolve())):
            yield replace(line, constraint=line.constraint or include["how"].startswith(("-c", "--c")))


def _join_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines without comments, continuations joined, with the number at which each starts."""
    try:
        content = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{str(path)!r} is not UTF-8 text: {error}\nhint: save it as UTF-8") from error
    if "\0" in content:
        raise ConfigError(f"{str(path)!r} is not a text file: it holds NUL bytes.\nhint: save it as UTF-8")
    pending = ""
    start = 0
    for number, physical in enumerate(content.splitlines(), 1):
        if not pending:
            start = number
        stripped = re.sub(r"(^|\s)#.*$", "", physical)
        if stripped.endswith("\\"):
            pending += f"{stripped[:-1].strip()} "
            continue
        joined = " ".join(f"{pending}{stripped}".split())
        pending = ""
        if joined:
            yield start, joined
    if pending.strip():
        yield start, " ".join(pending.split())


def _parse_line(text: str, folder: Path) -> RequirementLine:
    editable = _EDITABLE.match(text)
    if editable is None and text.startswith("-"):
        found = _FIND_LINKS.match(text)
        if found:
            text = f"--find-links {_resolve_local(found['place'], folder) or found['place']}"
        return RequirementLine("option", text)
    if editable:
        what = editable["what"].strip("'\"")
    else:
        what = _PER_LINE_OPTION.sub("", text)
    requirement = _parse_requirement(what)
    if requirement is not None and requirement.url is not None:
        return RequirementLine("elsewhere", text, requirement, _resolve_local(requirement.url, folder))
    if requirement is None or editable or what.endswith(_ARCHIVES):
        return RequirementLine("elsewhere", text, None, _resolve_local(what, folder))
    normalized = Requirement(str(requirement))
    normalized.name = canonicalize_name(requirement.name)
    return RequirementLine("package", text.replace(what, str(normalized)), requirement)


def _parse_requirement(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _resolve_local(place: str, folder: Path) -> Path | None:
    """Return the path meant by `place`, if it is one. uv reads relative paths from the folder of the server."""
    path = re.sub(r"\[[^\]]*\]$", "", place.removeprefix("file://"))
    if "://" in path:
        return None
    return (folder / os.path.expanduser(path)).absolute()


def _read_project_lines(manifest: Path, content: dict[str, Any], folder: Path) -> list[RequirementLine]:
    project = content["project"]
    declared = project.get("dependencies", [])
    sources = {canonicalize_name(name): value for name, value in _uv_table(content).get("sources", {}).items()}
    if not isinstance(declared, list) or not all(isinstance(text, str) for text in declared):
        raise ConfigError(
            f"{str(manifest)!r}: [project] dependencies is not a list of strings.\n"
            'hint: write it as dependencies = ["math-verify==0.8.0"]'
        )
    lines = list[RequirementLine]()
    for text in declared:
        line = _parse_line(text, folder)
        # What a source replaces cannot be told by name and version any more.
        if line.requirement and (name := canonicalize_name(line.requirement.name)) in sources:
            line = RequirementLine("elsewhere", f"{line.text} from {sources[name]}", line.requirement)
        lines.append(line)
    if "dependencies" in project.get("dynamic", []):
        lines.append(RequirementLine("elsewhere", "dynamic dependencies"))
    return lines


def _read_package_name(content: dict[str, Any]) -> NormalizedName | None:
    """Return the name of the package that the project builds. Without a [build-system] it builds none."""
    builds = _uv_table(content).get("package", "build-system" in content)
    if builds:
        return canonicalize_name(str(content["project"].get("name", "")))
    return None


def _uv_table(content: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = content.get("tool", {}).get("uv", {})
    return table


def _is_own(line: RequirementLine, folder: Path) -> bool:
    if line.requirement is not None:
        return canonicalize_name(line.requirement.name) == OWN_NAME
    root, _ = split_server_folder(folder.resolve())
    return line.local is not None and line.local.resolve() == root


def _own_extras(line: RequirementLine) -> set[str]:
    if line.requirement is not None:
        return line.requirement.extras
    extras = re.search(r"\[([^\]]*)\]", line.text)
    if extras:
        return {name.strip() for name in extras[1].split(",") if name.strip()}
    return set()
