# SPDX-License-Identifier: Apache-2.0
"""Wheels made by hand, so that real uv can install them without a registry or a build backend."""

import zipfile
from collections.abc import Iterable
from pathlib import Path

WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def add_wheel(folder: Path, name: str, version: str, requires: Iterable[str] = ()) -> Path:
    """A package with one module of its own name that knows its `version`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    contents = {
        f"{name}.py": f"version = {version!r}\n",
        f"{name}-{version}.dist-info/METADATA": metadata(name, version, requires),
        f"{name}-{version}.dist-info/WHEEL": WHEEL,
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for inner, text in contents.items():
            wheel.writestr(inner, text)
        record = "".join(f"{inner},,\n" for inner in [*contents, f"{name}-{version}.dist-info/RECORD"])
        wheel.writestr(f"{name}-{version}.dist-info/RECORD", record)
    return path


def metadata(name: str, version: str, requires: Iterable[str] = (), extras: Iterable[str] = ()) -> str:
    headers = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    headers += [f"Provides-Extra: {extra}" for extra in extras]
    headers += [f"Requires-Dist: {text}" for text in requires]
    return "\n".join([*headers, ""])
