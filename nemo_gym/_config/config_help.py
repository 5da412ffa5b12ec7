# SPDX-License-Identifier: Apache-2.0
"""The help text of a command's config class, built from its docstring and fields.

The caller decides when and where to show it.
"""

import inspect
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def write_help(config_class: type[BaseModel]) -> str:
    """Return what `+help=true` shows for `config_class`."""
    description = inspect.cleandoc(config_class.__doc__ or "No description.")
    return "\n".join(
        [
            f"Displaying help for {config_class.__name__}",
            "",
            "Description",
            "-----------",
            description,
            "",
            "Parameters",
            "----------",
            *_list_parameters(config_class),
            "",
        ]
    )


def _list_parameters(config_class: type[BaseModel]) -> list[str]:
    fields = config_class.model_fields
    if not fields:
        return ["There are no arguments to this CLI command."]
    heads = {name: f"- {name} ({write_type(field.annotation)})" for name, field in fields.items()}
    width = max(map(len, heads.values()))
    return [f"{heads[name]:<{width}}  {_describe(field)}" for name, field in fields.items()]


def _describe(field: FieldInfo) -> str:
    description = " ".join((field.description or "").split())
    if field.alias and f"+{field.alias}=" not in description:
        description = f"{description} Given as `+{field.alias}=`.".strip()
    default = "[required]" if field.is_required() else f"[default: {field.get_default(call_default_factory=True)}]"
    return f"{description} {default}".strip()


def write_type(annotation: Any) -> str:
    """Return an annotation as a user would write it: `int | None`, `'train' | 'validation'`, `list[str]`."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return " | ".join(write_type(member) for member in get_args(annotation))
    if origin is Annotated:
        return write_type(get_args(annotation)[0])
    if origin is Literal:
        return " | ".join(repr(value) for value in get_args(annotation))
    if annotation is type(None):
        return "None"
    if origin is not None and get_args(annotation):
        return f"{write_type(origin)}[{', '.join(write_type(member) for member in get_args(annotation))}]"
    return getattr(annotation, "__name__", str(annotation))
