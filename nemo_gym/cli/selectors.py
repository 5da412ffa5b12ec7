# SPDX-License-Identifier: Apache-2.0
"""Names into config files: `--benchmark aime24` is `benchmarks/aime24/config.yaml`, in the first root that has it.

It looks at which files there are and never into them, so that a name costs no more than a few lookups.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import nemo_gym
from nemo_gym import NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME, component_search_roots
from nemo_gym._catalog.files import config_names, flavour_names, visible_roots
from nemo_gym._util.nearest import nearest
from nemo_gym.cli import render
from nemo_gym.cli.commands import Flag
from nemo_gym.errors import GymError


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
    """The config file that a `config`, `collection` or `component` flag names, relative to the root that holds it."""
    if flag.kind == "config":
        return value
    roots = component_search_roots()
    implied = _implied(flag, value)
    looked_in = visible_roots(flag.key, value.partition("/")[0], roots) if flag.kind == "component" else roots
    found = [(root, path) for root in looked_in for path in implied if (root / path).is_file()]
    if not found:
        raise UsageError(_miss(flag, value, implied[-1], looked_in))
    first, path = found[0]
    if hidden := [root / path for root in roots[roots.index(first) + 1 :] if (root / path).is_file()]:
        render.note(f"{flag.name} {value}: using {first / path}, which hides {', '.join(map(str, hidden))}")
    return str(path)


def names_of(flag: Flag, roots: Sequence[Path]) -> list[str]:
    """What can be given to a selector."""
    if flag.kind == "collection":
        return sorted({name for root in roots for name in config_names(root / flag.key)})
    return flavour_names(flag.key, roots)


def _implied(flag: Flag, value: str) -> list[Path]:
    """Where a name leads, the likeliest place first."""
    folder = Path(flag.key)
    if flag.kind == "component":
        name, _, flavour = value.partition("/")
        return [folder / name / "configs" / f"{flavour or name}.yaml"]
    whole = folder / value / "config.yaml"
    return [whole, folder / f"{value}.yaml"] if "/" in value else [whole]


def _miss(flag: Flag, value: str, implied: Path, roots: Sequence[Path]) -> str:
    lines = [f"{flag.name} {value}: there is no {implied}."]
    if close := _similar(flag, value, roots):
        lines[0] += f" Did you mean {close!r}?"
    elif value.endswith((".yaml", ".yml")):
        lines.append("hint: --config takes a path")
    else:
        noun = "environments" if flag.kind == "collection" and flag.key == "environments" else flag.key
        lines.append(f"hint: `gym list {_NOUNS.get(noun, noun)}` shows what there is")
    return "\n".join([*lines, f"looked in: {', '.join(str(root / flag.key) for root in roots)}"])


_NOUNS = {"resources_servers": "resources-servers", "responses_api_models": "models"}


def _similar(flag: Flag, value: str, roots: Sequence[Path]) -> str | None:
    """The name that was probably meant: a flavour of a server that exists, else a name that is spelt alike."""
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
