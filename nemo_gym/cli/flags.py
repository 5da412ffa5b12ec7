# SPDX-License-Identifier: Apache-2.0
"""Flags into override tokens. Values are quoted, so that commas, braces, spaces and `=` in them survive."""

import os
from pathlib import Path

from nemo_gym import NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, component_search_roots
from nemo_gym._util.nearest import nearest
from nemo_gym.cli.commands import Command, Flag
from nemo_gym.errors import GymError


class UsageError(GymError):
    """The command line itself is wrong."""


def to_overrides(command: Command, tokens: list[str]) -> list[str]:
    """The override tokens that `tokens` (flags and overrides, mixed freely) stand for."""
    flags = {name: flag for flag in command.flags for name in (flag.name, flag.short) if name}
    overrides, configs, components = list[str](), list[str](), list[tuple[Flag, str]]()
    rest = iter(tokens)
    for token in rest:
        if not token.startswith("-"):
            overrides.append(token)
            continue
        name, has_value, value = token.partition("=")
        flag = flags.get(name)
        if flag is None:
            close = nearest(name, list(flags))
            raise UsageError(f"unknown flag {name!r}.{f' Did you mean {close[0]!r}?' if close else ''}")
        if flag.kind == "switch":
            overrides.append(f"++{flag.key}=true")
            continue
        value = value if has_value else next(rest, "")
        if not value:
            raise UsageError(f"flag {name!r} needs a value")
        if flag.kind == "config":
            configs.append(value)
        elif flag.kind == "component":
            components.append((flag, value))
        elif flag.kind == "search_dir":
            _search_first(value)
        elif flag.kind == "number":
            overrides.append(f"++{flag.key}={value}")  # a number, or a mapping of numbers
        else:
            from nemo_gym._config.overrides import override_token  # loads omegaconf, which `--help` can do without

            overrides.append(override_token(flag.key, value))
    configs += [_component_config(flag, value) for flag, value in components]
    return _with_config_paths(configs, overrides)


def _with_config_paths(configs: list[str], overrides: list[str]) -> list[str]:
    """`overrides` with one `config_paths` that lists the files of flags before those given as an override."""
    if not configs:
        return overrides
    from nemo_gym._config.overrides import override_token, parse_overrides

    given = [token for token in overrides if token.lstrip("+").startswith("config_paths=")]
    more = parse_overrides(given).values.get("config_paths", [])
    paths = [*configs, *(more if isinstance(more, list) else [more])]
    return [override_token("config_paths", paths), *(token for token in overrides if token not in given)]


def _search_first(folder: str) -> None:
    known = os.environ.get(NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME)
    os.environ[NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME] = f"{folder}{os.pathsep}{known}" if known else folder


def _component_config(flag: Flag, value: str) -> str:
    """The config file of the component `name` or `name/flavour`."""
    name, _, flavour = value.partition("/")
    relative = Path(flag.key) / name / "configs" / f"{flavour or name}.yaml"
    roots = component_search_roots()
    if any((root / relative).is_file() for root in roots):
        return str(relative)
    there = sorted({folder.parent.name for root in roots for folder in (root / flag.key).glob("*/configs")})
    close = nearest(name, there)
    raise UsageError(
        f"{flag.name} {value}: there is no {relative}.{f' Did you mean {close[0]!r}?' if close else ''}\n"
        f"looked in: {', '.join(map(str, roots))}"
    )
