# SPDX-License-Identifier: Apache-2.0
"""`gym <group> <command> [flags] [+key=value ...]`: find the command, turn its flags into overrides, run it."""

import importlib
import os
import sys
from collections.abc import Iterable, Sequence

from nemo_gym._util.nearest import nearest
from nemo_gym.cli import render
from nemo_gym.cli.commands import GROUP_HELP, GROUPS, JSON, Command
from nemo_gym.cli.flags import UsageError, to_overrides
from nemo_gym.errors import GymError

_HELP_FLAGS = frozenset({"-h", "--help"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(arguments)
    except UsageError as error:
        render.error(str(error))
        return 2
    except GymError as error:
        render.error(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Python flushes stdout once more at exit; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _dispatch(arguments: list[str]) -> int:
    if arguments and arguments[0] == "--version":
        from nemo_gym.cli.version import show_version

        return show_version(as_json=JSON.name in arguments or "+json=true" in arguments)
    if not arguments or arguments[0] in _HELP_FLAGS:
        render.data(_root_help())
        return 0 if arguments else 1
    group, *rest = arguments
    commands = GROUPS.get(group)
    if commands is None:
        raise UsageError(f"there is no command group {group!r}.{_suggestion(group, GROUPS)}\nhint: gym --help")
    if not rest or rest[0] in _HELP_FLAGS:
        render.data(_group_help(group, commands))
        return 0 if rest else 1
    name, *tokens = rest
    command = commands.get(name)
    if command is None:
        raise UsageError(f"`gym {group}` has no command {name!r}.{_suggestion(name, commands)}\nhint: gym {group} -h")
    if _HELP_FLAGS & set(tokens):
        render.data(_command_help(f"{group} {name}", command))
        return 0
    return _run(command, to_overrides(command, tokens))


def _run(command: Command, overrides: list[str]) -> int:
    module, _, function = command.implementation.partition(":")
    return int(getattr(importlib.import_module(module), function)(overrides))


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = nearest(name, list(known))
    return f" Did you mean {close[0]!r}?" if close else ""


def _root_help() -> str:
    lines = ["usage: gym <group> <command> [flags] [+key=value ...]", ""]
    for group, commands in GROUPS.items():
        lines.append(f"{group:10} {GROUP_HELP[group]}")
        lines.extend(f"  {name:10} {command.help}" for name, command in commands.items())
    lines += ["", "gym --version [--json]   versions and system", "gym <group> <command> -h  flags of a command"]
    return "\n".join(lines)


def _group_help(group: str, commands: dict[str, Command]) -> str:
    return "\n".join(
        [f"usage: gym {group} <command>", "", *(f"  {name:10} {command.help}" for name, command in commands.items())]
    )


def _command_help(name: str, command: Command) -> str:
    flags = [f"  {flag.name + (f', {flag.short}' if flag.short else ''):22} {flag.help}" for flag in command.flags]
    return "\n".join([f"usage: gym {name} [flags] [+key=value ...]", "", command.help, "", *flags])


if __name__ == "__main__":
    sys.exit(main())
