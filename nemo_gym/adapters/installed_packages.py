# SPDX-License-Identifier: Apache-2.0
"""Find environments that are Python packages: installed alongside their library, or given as a path."""

import difflib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import distributions
from pathlib import Path

from nemo_gym import _resolve_under_cwd_or_install
from nemo_gym._util.search_root_finder import import_file
from nemo_gym.errors import GymError

__all__ = ["UnknownEnvironment", "import_file", "list_dependents", "make_importable", "raise_unknown"]


class UnknownEnvironment(GymError):
    """The requested environment is not installed."""


def make_importable(name: str, list_known: Callable[[], Iterable[str]]) -> str:
    """Return the name to import an environment by; if `name` is a path, add its folder to `sys.path`.

    `list_known` returns the known names, for the error if there is no such environment.
    """
    path = _resolve_under_cwd_or_install(name) if name.endswith(".py") or "/" in name else None
    if path is not None and path.exists():
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        return path.stem
    # Names from a hub have the form owner/environment.
    if importlib.util.find_spec(name.split("/")[-1].replace("-", "_").removesuffix(".py")) is None:
        raise_unknown(name, list_known())
    return name


def raise_unknown(name: str, known: Iterable[str]) -> None:
    """Raise UnknownEnvironment, with the closest known names."""
    names = {path.stem if (path := Path(one)).suffix else one: one for one in known}
    close = [names[found] for found in difflib.get_close_matches(Path(name).stem, names, n=3, cutoff=0.4)]
    raise UnknownEnvironment(
        f"the environment {name!r} is not installed, and there is no such path.\n"
        f"closest: {', '.join(close or names.values()) or 'nothing is installed'}\n"
        f"hint: add its package to the server's config: `requirements: [{name}]`"
    )


def list_dependents(library: str) -> dict[str, str]:
    """Return the installed packages that require `library`, with their summaries."""
    needs = re.compile(rf"{re.escape(library)}(?![\w.-])", re.IGNORECASE)
    found = {
        package.metadata["Name"]: package.metadata["Summary"] or ""
        for package in distributions()
        if any(needs.match(requirement) for requirement in package.requires or ())
    }
    return dict(sorted(found.items()))
