# SPDX-License-Identifier: Apache-2.0
"""Flags and bare words into override tokens. Values are quoted, so that commas, braces, spaces and `=` survive.

Which file a name such as `--benchmark aime24` stands for is left to `selectors.py`.
"""

import re
from collections.abc import Iterator, Sequence

from nemo_gym._util.nearest import nearest
from nemo_gym.cli.commands import Command, Flag, Positional
from nemo_gym.cli.selectors import UsageError as UsageError
from nemo_gym.cli.selectors import config_of, search_first

VERBOSE = Flag("--verbose", "verbose", "log everything, and show tracebacks", "switch", "-v")
_OVERRIDE = re.compile(r"\+|~?[A-Za-z_$][\w.@/$-]*=|~[A-Za-z_]")
_SELECTOR_KINDS = ("config", "collection", "component")


def to_overrides(command: Command, tokens: Sequence[str]) -> list[str]:
    """The override tokens that `tokens` (flags, bare words and overrides, mixed freely) stand for."""
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
            flag = _known(name, flags)
            if flag.kind == "switch":
                overrides.append(f"++{flag.key}={value if has_value else flag.constant}")
                continue
            values = _values(flag, name, [value] if has_value else [], rest, flags)
            if flag.kind in _SELECTOR_KINDS:
                selected.append((flag, values[0]))
            elif flag.kind == "search_dir":
                folders.append(values[0])
            elif flag.kind == "entrypoint" and flag.name in given:
                raise UsageError(f"flag {name!r} names one server, but is given twice.\nhint: give it once")
            else:
                overrides += _settings(flag, values)
                given.add(flag.name)
    overrides += _filled(command.positionals, words)
    search_first(folders)
    return _with_config_paths(_configs(command, selected), overrides)


def flags_of(command: Command) -> dict[str, Flag]:
    """Every spelling of every flag that a command takes."""
    return {name: flag for flag in (*command.flags, VERBOSE) for name in (flag.name, flag.short) if name}


def require_choice(what: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is none of `choices`, if there are any."""
    if not choices or value in choices:
        return
    close = nearest(value, choices)
    guess = f" Did you mean {close[0]!r}?" if close else ""
    raise UsageError(f"{what}: {value!r} is not one of {', '.join(choices)}.{guess}")


def _known(name: str, flags: dict[str, Flag]) -> Flag:
    flag = flags.get(name)
    if flag is None:
        close = nearest(name, list(flags))
        guess = f" Did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"unknown flag {name!r}.{guess}\nhint: `-h` lists the flags of a command")
    return flag


def _values(flag: Flag, name: str, values: list[str], rest: Iterator[str], flags: dict[str, Flag]) -> list[str]:
    """The values of a flag, taken from behind it as far as they are not part of it."""
    for value in rest if len(values) < flag.count else ():
        if value in flags:
            raise UsageError(f"flag {name!r} needs {_amount(flag)}, but {value!r} follows it")
        values.append(value)
        if len(values) == flag.count:
            break
    if len(values) < flag.count:
        raise UsageError(f"flag {name!r} needs {_amount(flag)}")
    for value in values:
        require_choice(name, value, flag.choices)
    return values


def _amount(flag: Flag) -> str:
    return "a value" if flag.count == 1 else f"{flag.count} values"


def _settings(flag: Flag, values: list[str]) -> list[str]:
    keys = (flag.key, *flag.also)
    if flag.kind == "entrypoint":
        return [_text("entrypoint", f"{flag.key}/{values[0]}")]
    if flag.kind == "number":
        value = values[0] if flag.count == 1 else f"[{','.join(values)}]"
        return [f"++{key}={value}" for key in keys]
    return [_text(key, values[0] if flag.count == 1 else values) for key in keys]


def _text(key: str, value: str | list[str]) -> str:
    from nemo_gym._config.overrides import override_token  # loads omegaconf, which `--help` can do without

    return override_token(key, value)


def _filled(positionals: Sequence[Positional], words: list[str]) -> list[str]:
    """Bare words as overrides."""
    takers = list(positionals)
    while len(words) < len(takers) and (optional := next((one for one in takers if one.optional), None)):
        takers.remove(optional)
    tokens = []
    for position, taker in enumerate(takers[: len(words)]):
        given = words[position:] if taker.many else words[position : position + 1]
        for word in given:
            require_choice(taker.name, word, taker.choices)
        tokens.append(_text(taker.key, given if taker.many else given[0]))
    if len(words) > len(takers) and not (takers and takers[-1].many):
        raise UsageError(
            f"unexpected word {words[len(takers)]!r}.\n"
            "hint: a setting is written `+key=value`; a text with spaces needs quotes"
        )
    return tokens


def _configs(command: Command, selected: list[tuple[Flag, str]]) -> list[str]:
    """The config files that were named, in the order of the flags in the table: later ones win."""
    order = {flag.name: position for position, flag in enumerate(command.flags)}
    return [config_of(flag, value) for flag, value in sorted(selected, key=lambda one: order[one[0].name])]


def _with_config_paths(configs: list[str], overrides: list[str]) -> list[str]:
    """`overrides` with one `config_paths` that lists the files of flags before those given as an override."""
    if not configs:
        return overrides
    from nemo_gym._config.overrides import parse_overrides

    given = [token for token in overrides if token.lstrip("+").startswith("config_paths=")]
    more = parse_overrides(given).values.get("config_paths", [])
    paths = [*configs, *(more if isinstance(more, list) else [more])]
    return [_text("config_paths", paths), *(token for token in overrides if token not in given)]
