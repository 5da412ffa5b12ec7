# SPDX-License-Identifier: Apache-2.0
"""Generate the pages of the Python API: one per public module, filled in by mkdocstrings from its source."""

import ast

from scripts.reference.markdown import write_table
from scripts.reference.server_configs import ROOT

INTRODUCTION = """\
# Python API

The modules that you may import, subclass and patch. Names that start with an underscore may change at any time.
"""


PACKAGES = ("adapters", "integrations", "sandbox", "token_id_capture")


def list_modules() -> list[str]:
    """Return the names of the public modules that define something, without the `nemo_gym.` prefix."""
    top = ROOT / "nemo_gym"
    files = [*top.glob("[!_]*.py"), *(file for package in PACKAGES for file in (top / package).glob("[!_]*.py"))]
    modules = {".".join(file.relative_to(top).with_suffix("").parts): file for file in files}
    return sorted(name for name, file in modules.items() if _defines_something(file.read_text(encoding="utf-8")))


def write_index() -> str:
    """Write the page that lists the modules."""
    rows = [(f"[nemo_gym.{name}]({name}.md)", _summarize(name)) for name in list_modules()]
    return f"{INTRODUCTION}\n{write_table(('module', 'what'), rows)}"


def write_module(name: str) -> str:
    """Write the page of a module; mkdocstrings fills it in."""
    return f"# nemo_gym.{name}\n\n::: nemo_gym.{name}\n"


def _summarize(name: str) -> str:
    tree = ast.parse((ROOT / "nemo_gym" / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").split("\n\n")[0]


def _defines_something(text: str) -> bool:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(node, kinds) and not node.name.startswith("_") for node in ast.parse(text).body)
