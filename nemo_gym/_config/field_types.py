# SPDX-License-Identifier: Apache-2.0
"""Whether the values of a server's block have the types that its code declares, found without running that code.

Only types that are written with names everybody knows are looked at (`int | None`, `list[str]`, `Literal["a"]`); what
else can be wrong with a value is for the server itself to say when it is built.
"""

import ast
from collections.abc import Callable, Mapping
from typing import Any, Literal, Optional, Union

import pydantic

from nemo_gym._config.paths import KeyPath, join_path
from nemo_gym._config.problems import Problems
from nemo_gym._config.provenance import Provenance
from nemo_gym._config.servers import Detected, implementation_of
from nemo_gym._config.validation_text import explain
from nemo_gym.errors import ConfigError

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
                for below, text in _mistakes(fields.get(str(key), []), value).items():
                    place = provenance.near((*path, *below))
                    where = f"{join_path((*path, *below))}{f' ({place})' if place else ''}"
                    problems.add(ConfigError, f"{where}: {text}")
    return problems


def _mistakes(written: list[str], value: Any) -> dict[KeyPath, str]:
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
