# SPDX-License-Identifier: Apache-2.0
"""What a command of the command line is: its flags, its bare words, where it is implemented. The table of all commands
is `commands.py`.
"""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Flag:
    """A command-line flag and what its value becomes, by its kind:

    value       text, kept exactly as it was given: `++key='text'`
    number      a number or a mapping, in the grammar of overrides: `++key=5`
    switch      takes no value: `++key=true`, or `++key=<constant>`
    config      a config file, put into `config_paths`
    collection  the config of the folder `<key>/NAME`, or `NAME/FLAVOUR`, put into `config_paths`
    component   the config of the server `<key>/NAME`, or `NAME/FLAVOUR`, put into `config_paths`
    entrypoint  the folder of the server itself: `++entrypoint='<key>/NAME'`
    search_dir  a folder that servers, configs and data are looked for in first
    """

    name: str
    key: str
    help: str
    kind: Literal["value", "number", "switch", "config", "collection", "component", "entrypoint", "search_dir"] = (
        "value"
    )
    short: str | None = None
    choices: tuple[str, ...] = ()
    """The values it takes, if they are few."""
    also: tuple[str, ...] = ()
    """Further keys that get the same value."""
    count: int = 1
    """How many values it takes; more than one become a list."""
    constant: str = "true"
    """What a switch sets its key to."""


@dataclass(frozen=True)
class Positional:
    """A bare word of a command line and the key that it sets: `gym view FILE` is `gym view ++jsonl_fpath='FILE'`.

    Bare words fill the positionals of a command in their order. `+key=value` and `key=value` are overrides wherever
    they stand; after `--` every word is a bare one, so that a file may be called `a=b` or `-x`. No word is required
    here: the settings of the command say which keys it cannot do without.
    """

    name: str
    key: str
    help: str
    many: bool = False
    """The last positional of a command may take all words that are left, as a list."""
    optional: bool = False
    """Left out first where there are fewer words than positionals: `search [TYPE] QUERY`."""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """One command: `implementation` is `module:function`, called with the overrides, and returns the exit code.

    `settings` is `module:Class`, the pydantic class of the keys that the command reads; `+help=true` shows it.
    """

    implementation: str
    help: str
    flags: tuple[Flag, ...] = field(default=())
    positionals: tuple[Positional, ...] = field(default=())
    settings: str = ""
