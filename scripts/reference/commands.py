# SPDX-License-Identifier: Apache-2.0
"""Generate the page of commands from the table behind parsing, help and completion, and from the config classes."""

import inspect
from collections.abc import Iterator
from typing import Any

from pydantic.fields import FieldInfo

from nemo_gym._config.command_flags import Flag
from nemo_gym._config.config_help import write_type
from nemo_gym.cli.command_table import GROUP_HELP, GROUPS, list_commands
from nemo_gym.cli.flags import VERBOSE, Command, load
from nemo_gym.cli.help_pages import ROOT_FLAGS
from nemo_gym.cli.legacy import LEGACY
from scripts.reference.markdown import write_code, write_table

INTRODUCTION = """\
# Commands

`gym GROUP COMMAND [flags] [key=value ...]`; `ng` is the same program. A flag is a shortcut for the config key in its
last column. Every key can also be set with `+key=value`; the last one wins. `gym eval run -h` shows a command's flags
in the terminal, `gym eval run +help=true` its config keys.
"""


def write_page() -> str:
    """Write the page of all commands."""
    parts = [INTRODUCTION, write_table(("flag of `gym` itself", "what"), _list_root_flags())]
    older_names = _find_older_names()
    group = None
    for name, command in list_commands().items():
        first = name.split()[0]
        if first != group and first in GROUPS:
            group = first
            parts.append(f"## gym {group}\n\n{GROUP_HELP[group].capitalize()}.\n")
        elif first not in GROUPS and group is not None:
            group = None
            parts.append("## Other commands\n")
        parts.append(_write_command(name, command, older_names.get(name, [])))
    return "\n".join(parts)


def _list_root_flags() -> Iterator[tuple[str, str]]:
    return ((write_code(name), what) for name, what in ROOT_FLAGS.items())


def _find_older_names() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for older, words in LEGACY.items():
        found.setdefault(" ".join(word for word in words[:2] if not word.startswith("-")), []).append(older)
    return found


def _write_command(name: str, command: Command, older_names: list[str]) -> str:
    words = "".join(
        f" [{one.name}{' ...' * one.many}]" if one.optional else f" {one.name}{' ...' * one.many}"
        for one in command.positionals
    )
    settings = load(command.settings)
    parts = [f"### gym {name}\n", f"{_end_sentence(command.help)}\n", f"```text\ngym {name}{words} [flags]\n```\n"]
    if older_names:
        parts.append(f"Also called {', '.join(f'`ng_{one}`' for one in older_names)}.\n")
    if command.positionals:
        rows = [
            (write_code(one.name), _add_choices(one.help, one.choices), write_code(one.key))
            for one in command.positionals
        ]
        parts.append(write_table(("word", "what", "sets"), rows))
    parts.append(write_table(("flag", "what", "sets"), map(_describe_flag, (*command.flags, VERBOSE))))
    if settings.model_fields:
        summary = f"Config keys of gym {name}"
        parts += [f'??? note "{summary}"\n', _indent(_describe_settings(settings))]
    return "\n".join(parts)


def _end_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _add_choices(text: str, choices: tuple[str, ...]) -> str:
    return f"{text} One of {', '.join(map(write_code, choices))}." if choices else text


def _describe_flag(flag: Flag) -> tuple[str, str, str]:
    names = ", ".join(write_code(name) for name in (flag.name, flag.short) if name)
    about = _add_choices(flag.help, flag.choices)
    return names, about, ", ".join(map(write_code, flag.sets))


def _describe_settings(settings: Any) -> str:
    rows = [
        (
            write_code(field.alias or name),
            write_code(write_type(field.annotation)),
            describe_default(field),
            field.description or "",
        )
        for name, field in settings.model_fields.items()
    ]
    about = inspect.cleandoc(settings.__doc__ or "")
    return f"{about}\n\n{write_table(('key', 'type', 'default', 'what'), rows)}"


def describe_default(field: FieldInfo) -> str:
    """Return the default of a field as code, or "required"."""
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)  # type: ignore[call-arg]
    return write_code(
        "null" if default is None else str(default).lower() if isinstance(default, bool) else repr(default)
    )


def _indent(text: str) -> str:
    return "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))
