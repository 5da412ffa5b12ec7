# SPDX-License-Identifier: Apache-2.0
"""Generate the pages of the Python API: one per public module, filled in by mkdocstrings from its source."""

import ast
import re

import nemo_gym
from scripts.reference.markdown import write_table
from scripts.reference.server_configs import ROOT

INTRODUCTION = """\
# Python API

The modules that you may import, subclass and patch. Names that start with an underscore may change at any time.
"""


READERS = {
    "environment authors": "For authors of environments",
    "agents and trainers": "For agents and trainers",
    "code for NeMo Gym": "For code written for NeMo Gym",
    "aliases": "Aliases",
}
PACKAGES = ("adapters", "integrations", "sandbox", "token_id_capture")


def list_modules() -> list[str]:
    """Return the names of the public modules that define something, without the `nemo_gym.` prefix."""
    top = ROOT / "nemo_gym"
    files = [*top.glob("[!_]*.py"), *(file for package in PACKAGES for file in (top / package).glob("[!_]*.py"))]
    modules = {".".join(file.relative_to(top).with_suffix("").parts): file for file in files}
    return sorted(name for name, file in modules.items() if _defines_something(file.read_text(encoding="utf-8")))


def read_readers() -> dict[str, list[str]]:
    """Return the public modules and packages by who uses them, as the docstring of the package lists them."""
    rows = re.findall(r"^ {4}(\w[\w ]*?) {2,}(.+(?:\n {8,}.+)*)", nemo_gym.__doc__ or "", re.MULTILINE)
    return {reader: names.split() for reader, names in rows}


def write_index() -> str:
    """Write the page that lists the public modules and packages, by who uses them."""
    pages = list_modules()
    parts = [INTRODUCTION]
    for reader, names in read_readers().items():
        rows = []
        for name in names:
            below = [page for page in pages if page.startswith(f"{name}.")]
            rows += [(_link(one) if one in pages else f"nemo_gym.{one}", _summarize(one)) for one in (name, *below)]
        parts += [f"## {READERS[reader]}\n", write_table(("module", "what"), rows)]
    return "\n".join(parts)


def _link(name: str) -> str:
    return f"[nemo_gym.{name}]({name}.md)"


def write_module(name: str) -> str:
    """Write the page of a module; mkdocstrings fills it in."""
    return f"# nemo_gym.{name}\n\n::: nemo_gym.{name}\n"


def _summarize(name: str) -> str:
    path = ROOT / "nemo_gym" / name.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").split("\n\n")[0]


def _defines_something(text: str) -> bool:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(node, kinds) and not node.name.startswith("_") for node in ast.parse(text).body)
