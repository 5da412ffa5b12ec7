# SPDX-License-Identifier: Apache-2.0
"""Turn flags and bare words into override tokens, and names into config files.

Values are quoted, so that commas, braces, spaces and `=` survive. `--benchmark aime24` is
`benchmarks/aime24/config.yaml` in the first root that has it; nothing looks into files here, so that a name costs no
more than a few lookups.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import nemo_gym
from nemo_gym import NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, component_search_roots
from nemo_gym._catalog.files import config_names, flavour_names, visible_roots
from nemo_gym._util.nearest import nearest
from nemo_gym.cli import render
from nemo_gym.cli.commands import Command, Flag, Positional
from nemo_gym.errors import GymError

VERBOSE = Flag("--verbose", "verbose", "log everything, and show tracebacks", "switch", "-v")
_OVERRIDE = re.compile(r"\+|~?[A-Za-z_$][\w.@/$-]*=|~[A-Za-z_]")
_SELECTOR_KINDS = ("config", "collection", "component")


def to_overrides(command: Command, tokens: Sequence[str]) -> list[str]:
    """Turn `tokens` (flags, bare words and overrides, mixed freely) into override tokens."""
    flags = flags_of(command)
    overrides, words, folders, selected = list[str](), list[str](), list[str](), list[tuple[Flag, str]]()
    given = set[str]()
    rest = iter(tokens)
    for token in rest:
        if token == "--":
            words += rest
        elif not token.startswith("-") or token == "-":
            (overrides if _OVERRIDE.match(token) or not command.positionals else words).append(token)
        else:
            name, has_value, value = token.partition("=")
            flag = _find_flag(name, flags)
            if flag.kind == "switch":
                overrides.append(f"++{flag.key}={value if has_value else flag.constant}")
                continue
            values = _take_values(flag, name, [value] if has_value else [], rest, flags)
            if flag.kind in _SELECTOR_KINDS:
                selected.append((flag, values[0]))
            elif flag.kind == "search_dir":
                folders.append(values[0])
            elif flag.kind == "entrypoint" and flag.name in given:
                raise UsageError(f"flag {name!r} names one server, but is given twice.\nhint: give it once")
            else:
                overrides += _set_keys(flag, values)
                given.add(flag.name)
    overrides += _fill_positionals(command.positionals, words)
    search_first(folders)
    return _put_config_paths_first(_find_configs(command, selected), overrides)


def flags_of(command: Command) -> dict[str, Flag]:
    """Return every spelling of every flag that a command takes."""
    return {name: flag for flag in (*command.flags, VERBOSE) for name in (flag.name, flag.short) if name}


def require_choice(what: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is none of `choices`, if there are any."""
    if not choices or value in choices:
        return
    close = nearest(value, choices)
    guess = f" Did you mean {close[0]!r}?" if close else ""
    raise UsageError(f"{what}: {value!r} is not one of {', '.join(choices)}.{guess}")


def _find_flag(name: str, flags: dict[str, Flag]) -> Flag:
    flag = flags.get(name)
    if flag is None:
        close = nearest(name, list(flags))
        guess = f" Did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"unknown flag {name!r}.{guess}\nhint: `-h` lists the flags of a command")
    return flag


def _take_values(flag: Flag, name: str, values: list[str], rest: Iterator[str], flags: dict[str, Flag]) -> list[str]:
    """Take the values of a flag from the tokens behind it, unless `--flag=value` gave them."""
    for value in rest if len(values) < flag.count else ():
        if value in flags:
            raise UsageError(f"flag {name!r} needs {_say_amount(flag)}, but {value!r} follows it")
        values.append(value)
        if len(values) == flag.count:
            break
    if len(values) < flag.count:
        raise UsageError(f"flag {name!r} needs {_say_amount(flag)}")
    for value in values:
        require_choice(name, value, flag.choices)
    return values


def _say_amount(flag: Flag) -> str:
    return "a value" if flag.count == 1 else f"{flag.count} values"


def _set_keys(flag: Flag, values: list[str]) -> list[str]:
    keys = (flag.key, *flag.also)
    if flag.kind == "entrypoint":
        return [_quote("entrypoint", f"{flag.key}/{values[0]}")]
    if flag.kind == "number":
        value = values[0] if flag.count == 1 else f"[{','.join(values)}]"
        return [f"++{key}={value}" for key in keys]
    return [_quote(key, values[0] if flag.count == 1 else values) for key in keys]


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
            "hint: a setting is written `+key=value`; a text with spaces needs quotes"
        )
    return tokens


def _find_configs(command: Command, selected: list[tuple[Flag, str]]) -> list[str]:
    """Return the config files that were named, in the order of the flags in the table: later ones win."""
    order = {flag.name: position for position, flag in enumerate(command.flags)}
    return [config_of(flag, value) for flag, value in sorted(selected, key=lambda one: order[one[0].name])]


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


class UsageError(GymError):
    """The command line itself is wrong."""


def search_first(folders: Sequence[str]) -> None:
    """Look for servers, configs and data in `folders` before anywhere else, in this process and those it starts."""
    if not folders:
        return
    for folder in folders:
        if not Path(folder).is_dir():
            raise UsageError(f"--search-dir {folder}: there is no such folder")
    known = os.environ.get(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME)
    roots = [*map(os.path.abspath, folders), *([known] if known else [])]
    os.environ[NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME] = os.pathsep.join(roots)
    nemo_gym._make_servers_importable()


def config_of(flag: Flag, value: str) -> str:
    """Return the config file that a `config`, `collection` or `component` flag names, relative to its root."""
    if flag.kind == "config":
        return value
    roots = component_search_roots()
    implied = _list_places(flag, value)
    looked_in = visible_roots(flag.key, value.partition("/")[0], roots) if flag.kind == "component" else roots
    found = [(root, path) for root in looked_in for path in implied if (root / path).is_file()]
    if not found:
        raise UsageError(_explain_miss(flag, value, implied[-1], looked_in))
    first, path = found[0]
    if hidden := [root / path for root in roots[roots.index(first) + 1 :] if (root / path).is_file()]:
        render.note(f"{flag.name} {value}: using {first / path}, which hides {', '.join(map(str, hidden))}")
    return str(path)


def names_of(flag: Flag, roots: Sequence[Path]) -> list[str]:
    """Return what can be given to a selector."""
    if flag.kind == "collection":
        return sorted({name for root in roots for name in config_names(root / flag.key)})
    return flavour_names(flag.key, roots)


def _list_places(flag: Flag, value: str) -> list[Path]:
    """Return where a name leads, the likeliest place first."""
    folder = Path(flag.key)
    if flag.kind == "component":
        name, _, flavour = value.partition("/")
        return [folder / name / "configs" / f"{flavour or name}.yaml"]
    whole = folder / value / "config.yaml"
    return [whole, folder / f"{value}.yaml"] if "/" in value else [whole]


def _explain_miss(flag: Flag, value: str, implied: Path, roots: Sequence[Path]) -> str:
    lines = [f"{flag.name} {value}: there is no {implied}."]
    if close := _guess_name(flag, value, roots):
        lines[0] += f" Did you mean {close!r}?"
    elif value.endswith((".yaml", ".yml")):
        lines.append("hint: --config takes a path")
    else:
        noun = "environments" if flag.kind == "collection" and flag.key == "environments" else flag.key
        lines.append(f"hint: `gym list {_NOUNS.get(noun, noun)}` shows what there is")
    return "\n".join([*lines, f"looked in: {', '.join(str(root / flag.key) for root in roots)}"])


_NOUNS = {"resources_servers": "resources-servers", "responses_api_models": "models"}


def _guess_name(flag: Flag, value: str, roots: Sequence[Path]) -> str | None:
    """Return the name that was probably meant: a flavour of a server that exists, else a name that is spelt alike."""
    names = names_of(flag, roots)
    below = [name for name in names if name.startswith(f"{value}/")]
    if flag.kind == "collection" and below:
        return min(below, key=len)
    if flag.kind == "component":
        server = value.partition("/")[0]
        flavours = [name for name in names if name.partition("/")[0] == server]
        if flavours:
            return next(iter(nearest(value, flavours)), flavours[0])
    return next(iter(nearest(value, names)), None)
