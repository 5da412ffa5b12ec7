# SPDX-License-Identifier: Apache-2.0
"""Help pages of every level, written from the table of commands. `-h` shows flags, `+help=true` the config keys."""

import textwrap
from collections.abc import Iterable

from nemo_gym._config.command_flags import Flag
from nemo_gym.cli.command_table import COMMANDS, GROUP_HELP, GROUPS
from nemo_gym.cli.flags import VERBOSE, Command, Positional, load

_WIDTH = 110
_VALUES = {
    "number": "N",
    "config": "PATH",
    "collection": "NAME",
    "component": "NAME",
    "entrypoint": "NAME",
    "search_dir": "DIR",
}
ROOT_FLAGS = {
    "--help": "this page; also `gym <group> -h` and `gym <group> <command> -h`",
    "--version": "versions and system; with --json as JSON",
    "--verbose": "log everything, and show tracebacks; also after a command",
    "--install-completion": "install Tab completion of commands, flags and names: bash, zsh or fish",
    "--show-completion": "print the completion script instead of installing it",
}


def root() -> str:
    """Write the page of `gym --help`."""
    lines = ["usage: gym <group> <command> [flags] [+key=value ...]"]
    for name, commands in GROUPS.items():
        lines += ["", f"{name}: {GROUP_HELP[name]}", *_list_commands(commands)]
    lines += ["", "more:", *_list_commands(COMMANDS), "", "options:", *_align(ROOT_FLAGS.items())]
    return "\n".join([*lines, "", "Any config key can be set with +key=value or ++key=value; the last one wins."])


def group(name: str) -> str:
    """Write the page of `gym <group> -h`."""
    return "\n".join(
        [
            f"usage: gym {name} <command> [flags] [+key=value ...]",
            "",
            GROUP_HELP[name],
            "",
            *_list_commands(GROUPS[name]),
            "",
            f"`gym {name} <command> -h` shows the flags of a command, `+help=true` all its config keys.",
        ]
    )


def command(name: str, command: Command) -> str:
    """Write the page of `gym <group> <command> -h`."""
    words = "".join(f" {_spell_positional(one)}" for one in command.positionals)
    lines = [f"usage: gym {name}{words} [flags] [+key=value ...]", "", command.help]
    if command.positionals:
        lines += ["", *_align((one.name, _add_choices(one.help, one.choices)) for one in command.positionals)]
    lines += ["", "flags:", *_align((_spell_flag(flag), _describe_flag(flag)) for flag in (*command.flags, VERBOSE))]
    return "\n".join([*lines, "", "`+help=true` shows every config key with its type and default."])


def parameters(command: Command) -> str:
    """Write the page of `gym <group> <command> +help=true`: every key with type, default and description."""
    from nemo_gym._config.config_help import write_help

    return write_help(load(command.settings)).rstrip()


def _list_commands(commands: dict[str, Command]) -> list[str]:
    return _align((name, command.help) for name, command in commands.items())


def _spell_flag(flag: Flag) -> str:
    names = ", ".join(filter(None, (flag.name, flag.short)))
    if flag.kind == "switch":
        return names
    return f"{names} {' '.join([_VALUES.get(flag.kind, 'VALUE')] * flag.count)}"


def _describe_flag(flag: Flag) -> str:
    about = _add_choices(flag.help, flag.choices)
    if flag.sets:
        about += f" [{', '.join(flag.sets)}]"
    return about


def _add_choices(text: str, choices: tuple[str, ...]) -> str:
    if choices:
        text += f" One of {', '.join(choices)}."
    return text


def _spell_positional(positional: Positional) -> str:
    spelled = positional.name
    if positional.many:
        spelled += " ..."
    if positional.optional:
        spelled = f"[{spelled}]"
    return spelled


def _align(pairs: Iterable[tuple[str, str]]) -> list[str]:
    listed = list(pairs)
    width = min(30, max((len(left) for left, _ in listed), default=0))
    lines = []
    for left, right in listed:
        first, *more = textwrap.wrap(right, _WIDTH - width - 4) or [""]
        lines += [f"  {left:{width}}  {first}"] if len(left) <= width else [f"  {left}", f"  {'':{width}}  {first}"]
        lines += [f"  {'':{width}}  {line}" for line in more]
    return lines
