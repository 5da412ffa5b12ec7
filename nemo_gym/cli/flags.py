# SPDX-License-Identifier: Apache-2.0
"""Define commands and positionals; turn flags and words into override tokens, and names into config files.

A command only sees overrides: `--model x` becomes `++policy_model_name='x'`. Values are quoted, so commas, braces,
spaces and `=` survive. `--benchmark aime24` is `benchmarks/aime24/config.yaml` in the first root that has it. No file
is read here, so a name costs only a few lookups. The commands are in `command_table.py`.
"""

import importlib
import os
import re
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import nemo_gym
from nemo_gym import NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, component_search_roots
from nemo_gym._authoring.config_catalog import config_names, flavor_names, visible_roots
from nemo_gym._config.command_flags import Flag, list_flags_of
from nemo_gym._util.nearest import nearest, suggest
from nemo_gym.cli import render
from nemo_gym.errors import GymError

_OVERRIDE = re.compile(r"\+|~?[A-Za-z_$][\w.@/$-]*=|~[A-Za-z_]")


class UsageError(GymError):
    """The command line itself is wrong."""


@dataclass(frozen=True)
class Positional:
    """A bare word of a command line and the key that it sets: `gym view FILE` is `gym view ++jsonl_fpath='FILE'`.

    Bare words fill the positionals of a command in order. `+key=value` and `key=value` are overrides anywhere; after
    `--` every word is a bare one, so a file may be called `a=b` or `-x`. No positional is required here: the command's
    settings say which keys are.
    """

    name: str
    key: str
    help: str
    many: bool = False
    """The last positional of a command may take all remaining words, as a list."""
    optional: bool = False
    """Left out first if there are fewer words than positionals: `search [TYPE] QUERY`."""
    choices: tuple[str, ...] = ()


REST = "the rest"
"""In the flags of a command: those that its settings declare and that are not listed."""
SERVER_SETTINGS = "settings:RunConfig"
"""The settings of `env start`, which every command that assembles a config accepts."""


@dataclass(frozen=True)
class Command:
    """One command: `implementation` is `module:function`, called with the overrides, and returns the exit code.

    `settings` is `module:Class`, the pydantic class of the keys that the command reads; `+help=true` shows it. Modules
    of `nemo_gym.cli` are written without that prefix.
    """

    implementation: str
    help: str
    settings: str
    takes: tuple[Flag | str, ...] = (REST,)
    """The flags in the order of the help page: names of flags that the settings declare, `REST`, or other flags."""
    positionals: tuple[Positional, ...] = ()
    leaves_out: tuple[str, ...] = ()
    """Flags of the settings that this command does not take."""

    @cached_property
    def flags(self) -> tuple[Flag, ...]:
        """The flags it takes, in the order of the help page."""
        found: list[Flag] = []
        for one in self.takes:
            if isinstance(one, Flag):
                found.append(one)
            elif one == REST:
                declared = list_flags_of(self.settings)
                found += [flag for name, flag in declared.items() if name not in self.takes]
            else:
                declared = list_flags_of(SERVER_SETTINGS) | list_flags_of(self.settings)
                found.append(declared[one])
        return tuple(flag for flag in found if flag.name not in self.leaves_out)


RUNNING: ContextVar[Command | None] = ContextVar("running command", default=None)
"""The command of this command line, so that messages can name its flags."""


def load(reference: str) -> Any:
    """Import the function or class that a command names as `module:name`."""
    module, _, name = reference.partition(":")
    path = module if module.startswith("nemo_gym.") else f"nemo_gym.cli.{module}"
    return getattr(importlib.import_module(path), name)


VERBOSE = Flag("--verbose", "verbose", "Log everything, and show tracebacks.", "switch", "-v")


def to_overrides(command: Command, tokens: Sequence[str]) -> list[str]:
    """Turn `tokens` (flags, bare words and overrides, mixed freely) into override tokens."""
    flags = list_flags(command)
    overrides = list[str]()
    words = list[str]()
    folders = list[str]()
    selected = list[tuple[Flag, str]]()
    given = set[str]()
    gathered = dict[Flag, list[str]]()
    rest = iter(tokens)
    for token in rest:
        if token == "--":
            words += rest
        elif not token.startswith("-") or token == "-":
            (overrides if _OVERRIDE.match(token) or not command.positionals else words).append(token)
        else:
            name, has_value, value = token.partition("=")
            flag = flags.get(name)
            if flag is None:
                raise UsageError(f"unknown flag {name!r}.{suggest(name, flags)}\nhint: `-h` lists its flags")
            if flag.kind == "switch":
                overrides.append(f"++{flag.key}={value if has_value else flag.constant}")
                continue
            values = _take_values(flag, name, [value] if has_value else [], rest, flags)
            if flag.selects_config:
                selected.append((flag, values[0]))
            elif flag.kind == "search_dir":
                folders.append(values[0])
            elif flag.many:
                gathered.setdefault(flag, []).extend(values)
            elif flag.kind == "entrypoint" and flag.name in given:
                raise UsageError(f"flag {name!r} names one server, but is given twice.\nhint: give it once")
            else:
                overrides += _set_keys(flag, values)
                given.add(flag.name)
    overrides += [_quote(key, texts) for flag, texts in gathered.items() for key in flag.sets]
    overrides += _fill_positionals(command.positionals, words)
    search_first(folders)
    order = [flag.name for flag in command.flags]  # later ones in the table win
    selected.sort(key=lambda one: order.index(one[0].name))
    return _put_config_paths_first([find_config(flag, value) for flag, value in selected], overrides)


def list_flags(command: Command) -> dict[str, Flag]:
    """Return every spelling of every flag that a command takes."""
    return {name: flag for flag in (*command.flags, VERBOSE) for name in (flag.name, flag.short) if name}


def require_choice(what: str, value: str, choices: Sequence[str]) -> None:
    """Reject a value that is not one of `choices`, if there are any."""
    if choices and value not in choices:
        raise UsageError(f"{what}: {value!r} is not one of {', '.join(choices)}.{suggest(value, choices)}")


def _take_values(flag: Flag, name: str, values: list[str], rest: Iterator[str], flags: dict[str, Flag]) -> list[str]:
    """Take the values of a flag from the tokens after it, unless `--flag=value` gave them."""
    needs = f"flag {name!r} needs a value"
    if flag.count > 1:
        needs = f"flag {name!r} needs {flag.count} values"
    if flag.choices:
        needs += f", one of {', '.join(flag.choices)}"
    while len(values) < flag.count:
        value = next(rest, None)
        if value is None:
            raise UsageError(needs)
        if value in flags:
            raise UsageError(f"{needs}, but {value!r} follows it")
        values.append(value)
    for value in values:
        require_choice(name, value, flag.choices)
    return values


def _set_keys(flag: Flag, values: list[str]) -> list[str]:
    if flag.kind == "entrypoint":
        values = [f"{flag.key}/{values[0]}"]
    if flag.kind == "number":
        value = ",".join(values)
        if flag.count > 1:
            value = f"[{value}]"
        return [f"++{key}={value}" for key in flag.sets]
    return [_quote(key, values[0] if flag.count == 1 else values) for key in flag.sets]


def _quote(key: str, value: str | list[str]) -> str:
    from nemo_gym._config.overrides import override_token  # loads omegaconf, which `--help` can do without

    return override_token(key, value)


def _fill_positionals(positionals: Sequence[Positional], words: list[str]) -> list[str]:
    """Turn bare words into overrides."""
    takers = list(positionals)
    while len(words) < len(takers) and (optional := next((one for one in takers if one.optional), None)):
        takers.remove(optional)
    tokens = []
    for position, taker in enumerate(takers[: len(words)]):
        given = words[position:] if taker.many else words[position : position + 1]
        for word in given:
            require_choice(taker.name, word, taker.choices)
        tokens.append(_quote(taker.key, given if taker.many else given[0]))
    if len(words) > len(takers) and not (takers and takers[-1].many):
        raise UsageError(
            f"unexpected word {words[len(takers)]!r}.\n"
            "hint: a setting is written `+key=value`; text with spaces needs quotes"
        )
    return tokens


def _put_config_paths_first(configs: list[str], overrides: list[str]) -> list[str]:
    """Put the files that flags name before those that a `config_paths` override lists."""
    if not configs:
        return overrides
    from nemo_gym._config.overrides import parse_overrides

    given = [token for token in overrides if token.lstrip("+").startswith("config_paths=")]
    more = parse_overrides(given).values.get("config_paths", [])
    paths = [*configs, *(more if isinstance(more, list) else [more])]
    return [_quote("config_paths", paths), *(token for token in overrides if token not in given)]


# --- names into config files ------------------------------------------------------------------------------------------


def search_first(folders: Sequence[str]) -> None:
    """Look for servers, configs and data in `folders` before anywhere else, in this process and those it starts."""
    if not folders:
        return
    for folder in folders:
        if not Path(folder).is_dir():
            raise UsageError(f"--search-dir {folder}: there is no such folder")
    roots = list(map(os.path.abspath, folders))
    if known := os.environ.get(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME):
        roots.append(known)
    os.environ[NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME] = os.pathsep.join(roots)
    nemo_gym._make_servers_importable()


def find_config(flag: Flag, value: str) -> str:
    """Return the config file that a `config`, `collection` or `component` flag names, relative to its root."""
    if flag.kind == "config":
        return value
    roots: Sequence[Path] = component_search_roots()
    looked_in = roots
    if flag.kind == "component":
        name, _, flavor = value.partition("/")
        looked_in = visible_roots(flag.key, name, roots)
        implied = [Path(flag.key, name, "configs", f"{flavor or name}.yaml")]
    else:
        implied = [Path(flag.key, value, "config.yaml")]
        if "/" in value:
            implied.append(Path(flag.key, f"{value}.yaml"))
    found = [(root, path) for root in looked_in for path in implied if (root / path).is_file()]
    if not found:
        raise UsageError(_explain_miss(flag, value, implied[-1], looked_in))
    first, path = found[0]
    if hidden := [root / path for root in roots[roots.index(first) + 1 :] if (root / path).is_file()]:
        render.note(f"{flag.name} {value}: using {first / path}, which hides {', '.join(map(str, hidden))}")
    return str(path)


def list_names(flag: Flag, roots: Sequence[Path]) -> list[str]:
    """Return the names that a selector accepts."""
    if flag.kind == "collection":
        return sorted({name for root in roots for name in config_names(root / flag.key)})
    return flavor_names(flag.key, roots)


def _explain_miss(flag: Flag, value: str, implied: Path, roots: Sequence[Path]) -> str:
    lines = [f"{flag.name} {value}: there is no {implied}."]
    own = [name for name in list_names(flag, roots) if name.startswith(f"{value}/")]
    if flag.kind == "component" and len(own) > 1:
        lines[0] = f"{flag.name} {value}: there is no {implied.name}, but its folder has others: {', '.join(own)}"
        lines.append(f"hint: name one of them, as in `{flag.name} {own[0]}`")
    elif close := _guess_name(flag, value, roots):
        lines[0] += f" Did you mean {close!r}?"
    elif value.endswith((".yaml", ".yml")):
        lines.append("hint: --config takes a path")
    else:
        lines.append(f"hint: `gym list {_NOUNS.get(flag.key, flag.key)}` shows what there is")
    return "\n".join([*lines, f"looked in: {', '.join(str(root / flag.key) for root in roots)}"])


_NOUNS = {"resources_servers": "resources-servers", "responses_api_models": "models"}


def _guess_name(flag: Flag, value: str, roots: Sequence[Path]) -> str | None:
    """Return the name that was probably meant: a flavor of an existing server, else a similar name."""
    names = list_names(flag, roots)
    below = [name for name in names if name.startswith(f"{value}/")]
    if flag.kind == "collection" and below:
        return min(below, key=len)
    if flag.kind == "component":
        server = value.partition("/")[0]
        flavors = [name for name in names if name.partition("/")[0] == server]
        if flavors:
            return next(iter(nearest(value, flavors)), flavors[0])
    return next(iter(nearest(value, names)), None)
