# SPDX-License-Identifier: Apache-2.0
"""Read the code behind servers without running it: is it there, and which fields of which types does it declare.

Reading source text is enough for that, and takes milliseconds where an import takes seconds. Only types that are
written with names everybody knows are looked at (`int | None`, `list[str]`, `Literal["a"]`); what else can be wrong
with a value is for the server itself to say when it is built.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Optional, Union

import pydantic

from nemo_gym._config.files import first_existing
from nemo_gym._config.paths import KeyPath, join_path
from nemo_gym._config.problems import Problems, explain
from nemo_gym._config.provenance import Provenance
from nemo_gym._config.servers import Detected, implementation_of
from nemo_gym._util.nearest import nearest
from nemo_gym._util.server_imports import find_server_folder
from nemo_gym.errors import ConfigError

STAND_IN = "dummy_model"
_FOLLOWED = ("resources_servers.", "responses_api_agents.", "responses_api_models.", "nemo_gym.base_")


def implementation_problems(detected: Detected, provenance: Provenance, roots: Sequence[Path]) -> Problems:
    """Report servers whose folder or entrypoint is not there, and servers that share a port."""
    problems = Problems()
    ports = defaultdict[tuple[str, int], list[str]](list)
    for instance in detected.instances:
        block = instance.get_inner_run_server_config_dict()
        kind, impl = instance.SERVER_TYPE, implementation_of(instance)
        given = instance.get_inner_run_server_config()
        if given.port is not None:
            ports[given.host or "", given.port].append(instance.name)
        if impl == STAND_IN or block.get("external") or block.get("placement") == "external":
            continue
        if text := _explain_absence(kind, impl, given.entrypoint, roots):
            path = (instance.name, kind, impl)
            problems.add(ConfigError, f"{join_path(path)}{provenance.locate(path)}: {text}")
    for (_, port), names in ports.items():
        if len(names) > 1:
            problems.add(ConfigError, f"port {port} was given to {len(names)} servers: {', '.join(map(repr, names))}")
    return problems


def _explain_absence(kind: str, impl: str, entrypoint: str, roots: Sequence[Path]) -> str | None:
    folder = find_server_folder(kind, impl, roots)
    if folder is None:
        there = [found.name for root in roots for found in (root / kind).glob("[!._]*/")]
        close = nearest(impl, there, limit=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        looked = ", ".join(str(root / kind) for root in roots)
        return f"there is no implementation {impl!r}.{guess}\nlooked in: {looked}"
    if not (folder / entrypoint).is_file():
        close = nearest(entrypoint, [file.name for file in folder.glob("*.py")], limit=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        return f"its entrypoint {entrypoint!r} is not in {folder}.{guess}"
    return None


def declared_fields(kind: str, impl: str, entrypoint: str, roots: Sequence[Path]) -> dict[str, list[str]] | None:
    """Return the fields of all classes that a server's code holds or imports; None if a config class takes any field.

    With each come the types that config classes give it, as they are written, unless their values pass through a
    validator that may turn one type into another.
    """
    folder = find_server_folder(kind, impl, roots)
    if folder is None or not (folder / entrypoint).is_file():
        return None
    start = folder / entrypoint
    fields, seen, todo = dict[str, list[str]](), set[Path](), [start, *start.parent.glob("*.py")]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError):
            return None
        for node in _walk_statements(tree):
            if isinstance(node, ast.ClassDef):
                if _takes_any_field(node):
                    return None
                is_plain = node.name.endswith("Config") and not re.search(r"mode=.before|BeforeValidator", text)
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                        types = fields.setdefault(field.target.id, [])
                        types += [ast.unparse(field.annotation)] if is_plain else []
        todo += [found for module in _list_imports(tree) if (found := _find_file(module, roots)) is not None]
    return fields


def mentions(kind: str, impl: str, key: str, roots: Sequence[Path]) -> bool:
    """Return whether the code of a server has `key` as a text or as an attribute."""
    folder = find_server_folder(kind, impl, roots)
    spoken = re.compile(rf"""["'.]{re.escape(key)}\b""")
    files = folder.rglob("*.py") if folder is not None else ()
    return any(
        spoken.search(path.read_text(encoding="utf-8", errors="ignore"))
        for path in files
        if not any(part.startswith(".") or part == "tests" for part in path.relative_to(folder or path).parts)
    )


def _walk_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module, also those below `if` and `try`, but not those of functions."""
    for statement in (*getattr(node, "body", ()), *getattr(node, "orelse", ()), *getattr(node, "handlers", ())):
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk_statements(statement)


def _takes_any_field(node: ast.ClassDef) -> bool:
    """Return whether `node` is a config class with `extra="allow"`; requests and responses may do as they like."""
    return node.name.endswith("Config") and "extra='allow'" in ast.unparse(node).replace('"extra": ', "extra=")


def _list_imports(tree: ast.Module) -> Iterator[str]:
    """Yield modules of servers that a config class is imported from."""
    for node in _walk_statements(tree):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        if node.module.startswith(_FOLLOWED) and any(alias.name.endswith("Config") for alias in node.names):
            yield node.module


def _find_file(module: str, roots: Sequence[Path]) -> Path | None:
    top, name, *below = module.split(".")
    if not below:
        return first_existing(f"{top}/{name}.py", roots)
    folder = find_server_folder(top, name, roots)
    return first_existing(f"{'/'.join(below)}.py", [folder] if folder else [])


# --- types of fields --------------------------------------------------------------------------------------------------


_NAMES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (int, float, bool, str, list, dict)},
    **{
        name: getattr(pydantic, name) for name in ("PositiveInt", "NonNegativeInt", "PositiveFloat", "NonNegativeFloat")
    },
    "Any": Any,
    "Dict": dict,
    "List": list,
    "Literal": Literal,
    "Optional": Optional,
    "Union": Union,
}
_PARTS = (ast.Expression, ast.Name, ast.Constant, ast.Subscript, ast.BinOp, ast.BitOr, ast.Tuple, ast.Load)


def type_problems(
    detected: Detected,
    provenance: Provenance,
    fields_of: Callable[[str, str, str], Mapping[str, list[str]] | None],
    is_wanted: Callable[[KeyPath], bool] = lambda path: True,
) -> Problems:
    """Return the settings of servers, of those that are wanted, whose type is none that their field may have."""
    problems = Problems()
    for instance in detected.instances:
        kind, implementation = instance.SERVER_TYPE, implementation_of(instance)
        whole = (instance.name, kind, implementation)
        if not is_wanted(whole):
            continue
        fields = fields_of(kind, implementation, instance.get_inner_run_server_config().entrypoint) or {}
        for key, value in detected.values.plain[instance.name][kind][implementation].items():
            path = (*whole, str(key))
            if path not in detected.values.holes and is_wanted(path):
                for below, text in _find_mistakes(fields.get(str(key), []), value).items():
                    whole_path = (*path, *below)
                    problems.add(ConfigError, f"{join_path(whole_path)}{provenance.locate(whole_path)}: {text}")
    return problems


def _find_mistakes(written: list[str], value: Any) -> dict[KeyPath, str]:
    """Return what is wrong with `value` by all types that were `written` for it; nothing if one of them is unclear."""
    found: dict[KeyPath, str] = {}
    for text in written:
        declared = _evaluate(text)
        if declared is None:
            return {}
        try:
            pydantic.TypeAdapter(declared).validate_python(value)
            return {}
        except pydantic.ValidationError as error:
            found = found or explain(error, value)
    return found


def _evaluate(text: str) -> Any:
    """Return the type that `text` is, if it is made of nothing but well-known names; None otherwise."""
    tree = ast.parse(text, mode="eval")
    parts = list(ast.walk(tree))
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    if not names <= _NAMES.keys() or not all(isinstance(part, _PARTS) for part in parts):
        return None
    try:
        return eval(compile(tree, "<annotation>", "eval"), {"__builtins__": {}}, _NAMES)
    except (TypeError, ValueError):
        return None
