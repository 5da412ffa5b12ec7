# SPDX-License-Identifier: Apache-2.0
"""Flags, as the settings of commands declare them.

A field says that it has a flag, and the rest follows from the field:

    fail_on_tool_error: Annotated[bool, Flag()] = Field(default=False, description="Count a rollout …")

`write_table` gathers the flags of all commands in `command_flags.json`, so that `--help`, completion and the parsing of
command lines read a file instead of importing every settings class, and pydantic with them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

TABLE = Path(__file__).with_suffix(".json")
_SELECTOR_KINDS = ("config", "collection", "component")


@dataclass(frozen=True)
class Flag:
    """A command-line flag and what its value becomes, by its kind:

    value       text, kept exactly as it was given: `++key='text'`
    number      a number or a mapping, in the grammar of overrides: `++key=5`
    switch      takes no value: `++key=true`, or `++key=<constant>`
    config      a config file, put into `config_paths`
    collection  the config of the folder `<key>/NAME`, or `NAME/FLAVOR`, put into `config_paths`
    component   the config of the server `<key>/NAME`, or `NAME/FLAVOR`, put into `config_paths`
    entrypoint  the folder of the server itself: `++entrypoint='<key>/NAME'`
    search_dir  a folder to search first for servers, configs and data

    On a field, `name`, `key`, `help`, `kind` and `choices` are those of the field unless they are given.
    """

    name: str = ""
    key: str = ""
    help: str = ""
    kind: Literal["", "value", "number", "switch", "config", "collection", "component", "entrypoint", "search_dir"] = ""
    short: str | None = None
    choices: tuple[str, ...] = ()
    """The values it accepts, if they are limited."""
    also: tuple[str, ...] = ()
    """More keys that get the same value."""
    count: int = 1
    """How many values it takes; more than one become a list."""
    many: bool = False
    """It may be repeated; its values become a list."""
    constant: str = "true"
    """What a switch sets its key to."""

    @property
    def selects_config(self) -> bool:
        """Whether it chooses a config file."""
        return self.kind in _SELECTOR_KINDS

    @property
    def sets(self) -> tuple[str, ...]:
        """The config keys that it sets."""
        if self.selects_config:
            return ("config_paths",)
        if self.kind == "search_dir":
            return ()
        return ("entrypoint",) if self.kind == "entrypoint" else (self.key, *self.also)


def read_flags(settings: "type[BaseModel]") -> Iterator[Flag]:
    """Yield the flags that a settings class declares, complete, in the order of its fields."""
    for name, field in settings.model_fields.items():
        for flag in field.metadata:
            if isinstance(flag, Flag):
                yield _complete(flag, field.alias or name, field)


def _complete(flag: Flag, key: str, field: "FieldInfo") -> Flag:
    types = set(_list_types(field.annotation))
    kind: Literal["value", "number", "switch"] = "value"
    if bool in types:
        kind = "switch"
    elif types & {int, float} and not types & {str, Literal}:
        kind = "number"
    choices: tuple[str, ...] = ()
    if types == {Literal}:
        choices = tuple(_list_choices(field.annotation))
    return replace(
        flag,
        name=flag.name or f"--{key.replace('_', '-')}",
        key=flag.key or key,
        help=flag.help or field.description or "",
        kind=flag.kind or kind,
        choices=flag.choices or (choices if flag.kind in ("", "value") else ()),
        many=list in types,
    )


def _list_types(annotation: Any) -> Iterator[Any]:
    """Yield what a value may be, besides None: plain types, `list`, `dict`, `Literal`."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType, tuple):
        for member in get_args(annotation):
            yield from _list_types(member)
    elif origin is Annotated:
        yield from _list_types(get_args(annotation)[0])
    elif annotation is not type(None):
        yield origin or annotation


def _list_choices(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        for member in get_args(annotation):
            yield from _list_choices(member)


SAMPLING_FLAGS = (
    Flag("--temperature", "responses_create_params.temperature", "Sampling temperature.", "number"),
    Flag("--top-p", "responses_create_params.top_p", "Nucleus sampling.", "number"),
    Flag("--max-output-tokens", "responses_create_params.max_output_tokens", "Maximum tokens per reply.", "number"),
)
"""Flags of a field `responses_create_params`, each for one of its keys."""


# --- the table of all commands ----------------------------------------------------------------------------------------


@cache
def list_flags_of(settings: str) -> dict[str, Flag]:
    """Return the flags of the settings class `module:Class` by their names."""
    flags = [Flag(**one) for one in _load_table()[settings]["flags"]]
    return {flag.name: replace(flag, choices=tuple(flag.choices), also=tuple(flag.also)) for flag in flags}


def list_keys_of(settings: str) -> list[str]:
    """Return the config keys of the settings class `module:Class`, whether or not they have flags."""
    keys: list[str] = _load_table()[settings]["keys"]
    return keys


def list_settings_classes() -> list[str]:
    """Return the settings classes of all commands, as `module:Class`."""
    return list(_load_table())


def write_table(classes: "Mapping[str, type[BaseModel]]") -> str:
    """Return the table of the settings classes of all commands: one line per flag."""
    blocks = []
    for name, settings in classes.items():
        keys = json.dumps([field.alias or key for key, field in settings.model_fields.items()])
        flags = ",".join(f"\n    {json.dumps(_drop_defaults(flag))}" for flag in read_flags(settings))
        blocks.append(f'  {json.dumps(name)}: {{\n    "keys": {keys},\n    "flags": [{flags}]\n  }}')
    body = ",\n".join(blocks)
    return f"{{\n{body}\n}}\n"


def _drop_defaults(flag: Flag) -> dict[str, Any]:
    values = asdict(flag)
    return {field.name: values[field.name] for field in fields(flag) if values[field.name] != field.default}


@cache
def _load_table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(TABLE.read_bytes())
    return table
