# SPDX-License-Identifier: Apache-2.0
"""Read the code of servers without running it: whether it is there, and which fields of which types it declares.

Parsing the source takes milliseconds where an import takes seconds. Only types made of well-known names are checked
(`int | None`, `list[str]`, `Literal["a"]`); the server itself reports any other mistake when it is built.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Optional, Union

import pydantic

from nemo_gym._config.config_files import find_first
from nemo_gym._config.config_paths import KeyPath, join_path
from nemo_gym._config.problems import Problems, explain
from nemo_gym._config.provenance import Provenance
from nemo_gym._config.server_blocks import Detected, get_implementation
from nemo_gym._util.nearest import suggest
from nemo_gym._util.search_root_finder import find_server_folder
from nemo_gym.errors import ConfigError

STAND_IN = "dummy_model"
_ADAPTERS = "nemo_gym.adapters"
_FOLLOWED = ("resources_servers.", "responses_api_agents.", "responses_api_models.", "nemo_gym.base_", _ADAPTERS)


def check_implementations(detected: Detected, provenance: Provenance, roots: Sequence[Path]) -> Problems:
    """Report servers whose folder or entrypoint does not exist, and servers that share a port."""
    problems = Problems()
    ports = defaultdict[tuple[str, int], list[str]](list)
    for instance in detected.instances:
        block = instance.get_inner_run_server_config_dict()
        kind = instance.SERVER_TYPE
        impl = get_implementation(instance)
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
        looked = ", ".join(str(root / kind) for root in roots)
        return f"there is no implementation {impl!r}.{suggest(impl, there)}\nlooked in: {looked}"
    if not (folder / entrypoint).is_file():
        guess = suggest(entrypoint, [file.name for file in folder.glob("*.py")])
        return f"its entrypoint {entrypoint!r} is not in {folder}.{guess}"
    return None


class ServerCode:
    """The code of servers in the folders of `roots`."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots
        self._fields: dict[tuple[str, str, str], dict[str, list[str]] | None] = {}

    def find_fields(self, kind: str, impl: str, entrypoint: str) -> dict[str, list[str]] | None:
        """Return the fields of all classes that a server's code holds or imports; None if its config takes any field.

        Each comes with the types that config classes declare for it, as they are written, unless their values pass
        through a validator that may turn one type into another.
        """
        key = (kind, impl, entrypoint)
        if key not in self._fields:
            self._fields[key] = self._read_fields(*key)
        return self._fields[key]

    def mentions(self, kind: str, impl: str, key: str) -> bool:
        """Return whether the code of a server has `key` as a string or as an attribute."""
        folder = find_server_folder(kind, impl, self._roots)
        pattern = re.compile(rf"""["'.]{re.escape(key)}\b""")
        return folder is not None and any(
            pattern.search(path.read_text(encoding="utf-8", errors="ignore"))
            for path in folder.rglob("*.py")
            if not any(part.startswith(".") or part == "tests" for part in path.relative_to(folder).parts)
        )

    def _read_fields(self, kind: str, impl: str, entrypoint: str) -> dict[str, list[str]] | None:
        folder = find_server_folder(kind, impl, self._roots)
        if folder is None or not (folder / entrypoint).is_file():
            return None
        start = folder / entrypoint
        fields = dict[str, list[str]]()
        seen = set[Path]()
        todo = [start, *start.parent.glob("*.py")]
        while todo:
            path = todo.pop()
            if path in seen:
                continue
            seen.add(path)
            try:
                text = path.read_text(encoding="utf-8")
                statements = list(_walk_statements(ast.parse(text)))
            except (OSError, SyntaxError, ValueError):
                return None
            for node in statements:
                if isinstance(node, ast.ClassDef):
                    # Requests and responses may take any field; only config classes count.
                    is_config = node.name.endswith("Config")
                    if is_config and "extra='allow'" in ast.unparse(node).replace('"extra": ', "extra="):
                        return None
                    has_plain_types = is_config and not re.search(r"mode=.before|BeforeValidator", text)
                    for field in node.body:
                        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                            types = fields.setdefault(field.target.id, [])
                            if has_plain_types:
                                types.append(ast.unparse(field.annotation))
                elif isinstance(node, ast.ImportFrom):
                    module = node.module or ""
                    # A server on an adapter's base has its config without importing the class.
                    if module.startswith(_ADAPTERS) or any(alias.name.endswith("Config") for alias in node.names):
                        todo += self._find_module(module)
        return fields

    def _find_module(self, module: str) -> list[Path]:
        """Return the file of a module, if it is one of a server or a base class."""
        if not module.startswith(_FOLLOWED):
            return []
        if module == _ADAPTERS:
            module = f"{_ADAPTERS}.__init__"
        top, name, *below = module.split(".")
        if below and (folder := find_server_folder(top, name, self._roots)):
            found = find_first(f"{'/'.join(below)}.py", [folder])
        else:
            found = find_first(f"{top}/{name}.py", self._roots)
        return [found] if found is not None else []


def _walk_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module, with those inside `if` and `try` but not those of functions."""
    for statement in (*getattr(node, "body", ()), *getattr(node, "orelse", ()), *getattr(node, "handlers", ())):
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk_statements(statement)


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


def check_types(
    detected: Detected,
    provenance: Provenance,
    code: ServerCode,
    is_wanted: Callable[[KeyPath], bool] = lambda path: True,
) -> Problems:
    """Report the wanted settings of servers whose value fits none of the types that their field may have."""
    problems = Problems()
    for instance in detected.instances:
        kind = instance.SERVER_TYPE
        implementation = get_implementation(instance)
        whole = (instance.name, kind, implementation)
        if not is_wanted(whole):
            continue
        fields = code.find_fields(kind, implementation, instance.get_inner_run_server_config().entrypoint) or {}
        for key, value in detected.values.plain[instance.name][kind][implementation].items():
            path = (*whole, str(key))
            if path not in detected.values.holes and is_wanted(path):
                for below, text in _find_mistakes(fields.get(str(key), []), value).items():
                    whole_path = (*path, *below)
                    problems.add(ConfigError, f"{join_path(whole_path)}{provenance.locate(whole_path)}: {text}")
    return problems


def _find_mistakes(written: list[str], value: Any) -> dict[KeyPath, str]:
    """Return what is wrong with `value` by all types `written` for it; nothing if one of them cannot be evaluated."""
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
    """Return the type that `text` denotes if it consists of well-known names only, else None."""
    tree = ast.parse(text, mode="eval")
    parts = list(ast.walk(tree))
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    if not names <= _NAMES.keys() or not all(isinstance(part, _PARTS) for part in parts):
        return None
    try:
        return eval(compile(tree, "<annotation>", "eval"), {"__builtins__": {}}, _NAMES)
    except (TypeError, ValueError):
        return None
