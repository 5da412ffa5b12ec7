# SPDX-License-Identifier: Apache-2.0
"""The running nemo-gym as a wheel, so that the virtual environment of a server gets exactly this one.

A source tree becomes a wheel that points at the tree, as an editable install does; an installed package becomes a
wheel of its installed files. No build backend runs and no registry needs to have this version, so both are fast and
work offline. Dependencies are named in the wheel's metadata and left to the installer.
"""

import base64
import hashlib
import importlib.metadata
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nemo_gym._version import __version__

_REMADE = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}


@dataclass(frozen=True)
class OwnPackage:
    """What a wheel of this package is made of."""

    name: str
    version: str
    metadata: str
    entry_points: str = ""
    tree: Path | None = None
    """The source tree; None when the package is installed."""
    files: tuple[tuple[str, Path], ...] = ()
    """Names in the wheel and where their content is; empty for a source tree."""
    record: str = ""
    """Names and hashes of `files`: two builds of one version are two different packages."""

    @property
    def fingerprint(self) -> str:
        """Equal for packages that behave the same once installed."""
        parts = (self.name, self.version, self.metadata, self.entry_points, str(self.tree), self.record)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def find_running_package() -> OwnPackage:
    """Return the nemo-gym that this process runs."""
    root = Path(__file__).absolute().parents[3]
    if (root / "pyproject.toml").is_file():
        return package_of_tree(root, __version__)
    return package_of_distribution(importlib.metadata.distribution("nemo-gym"))


def package_of_tree(tree: Path, version: str) -> OwnPackage:
    """Return the project in `tree`, whose pyproject.toml lists its dependencies."""
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    entries = [
        line
        for group, members in groups.items()
        if members
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in members.items()))
    ]
    return OwnPackage(
        name=project["name"],
        version=version,
        metadata=_write_metadata(project, version),
        entry_points="\n".join([*entries, ""]) if entries else "",
        tree=tree,
    )


def package_of_distribution(distribution: importlib.metadata.Distribution) -> OwnPackage:
    """Return an installed package, with the files that its installer recorded."""
    files = [
        (str(file), Path(str(file.locate())))
        for file in distribution.files or ()
        # Scripts lie outside the package folder and are made anew; byte code belongs to one interpreter.
        if not str(file).startswith("..")
        and file.suffix != ".pyc"
        and not (file.parent.suffix == ".dist-info" and file.name in _REMADE)
    ]
    return OwnPackage(
        name=distribution.metadata["Name"],
        version=distribution.version,
        metadata=distribution.read_text("METADATA") or "",
        files=tuple(files),
        record=distribution.read_text("RECORD") or "",
    )


def write_wheel(package: OwnPackage, folder: Path) -> Path:
    """Write the wheel into `folder`."""
    stem = f"{canonicalize_name(package.name).replace('-', '_')}-{package.version}"
    dist_info = f"{stem}.dist-info"
    path = folder / f"{stem}-py3-none-any.whl"
    record: list[str] = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as wheel:

        def add(name: str, content: bytes) -> None:
            wheel.writestr(name, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}")

        for name, source in package.files:
            add(name, source.read_bytes())
        if package.tree is not None:
            add(f"__editable__.{stem}.pth", f"{package.tree}\n".encode())
            add(f"{dist_info}/METADATA", package.metadata.encode())
            add(f"{dist_info}/entry_points.txt", package.entry_points.encode())
            add(
                f"{dist_info}/WHEEL",
                b"Wheel-Version: 1.0\nGenerator: nemo-gym\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
        wheel.writestr(f"{dist_info}/RECORD", "\n".join([*record, f"{dist_info}/RECORD,,", ""]))
    return path


def _write_metadata(project: dict[str, Any], version: str) -> str:
    extras = project.get("optional-dependencies", {})
    lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {version}"]
    if "requires-python" in project:
        lines.append(f"Requires-Python: {project['requires-python']}")
    lines += (f"Requires-Dist: {text}" for text in project.get("dependencies", []))
    lines += (f"Provides-Extra: {extra}" for extra in extras)
    lines += (f"Requires-Dist: {_add_extra_marker(text, extra)}" for extra, texts in extras.items() for text in texts)
    return "\n".join([*lines, ""])


def _add_extra_marker(text: str, extra: str) -> str:
    requirement = Requirement(text)
    marker = f"({requirement.marker}) and " if requirement.marker else ""
    requirement.marker = None
    return f"{requirement} ; {marker}extra == {extra!r}"
