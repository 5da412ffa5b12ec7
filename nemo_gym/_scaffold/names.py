# SPDX-License-Identifier: Apache-2.0
"""Names of new servers and environments: what is allowed, and what was probably meant by one that is not."""

import keyword
import re

from nemo_gym.errors import GymError

_NAME = re.compile(r"[a-z][a-z0-9_]*")


class BadName(GymError, ValueError):
    """A name that cannot be the name of a Python package."""


def check_name(name: str) -> str:
    """`name` itself, if it can name a server: it becomes a folder, a Python package and part of config keys."""
    if _NAME.fullmatch(name) and not keyword.iskeyword(name):
        return name
    meant = _repaired(name)
    hint = f"\nhint: {meant!r} would do" if meant else ""
    raise BadName(
        f"{name!r} cannot name a server: lower-case letters, digits and '_' are allowed, beginning with a letter, "
        f"and Python's own words are not.{hint}"
    )


def class_prefix(name: str) -> str:
    """`my_server` as `MyServer`."""
    return "".join(part.capitalize() for part in name.split("_"))


def _repaired(name: str) -> str | None:
    """The nearest name that is allowed: `My-Server`, `MyServer` and `my server` are all `my_server`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    joined = re.sub(r"[^a-z0-9]+", "_", words).strip("_").lstrip("0123456789_")
    meant = f"{joined}_env" if keyword.iskeyword(joined) else joined
    return meant if _NAME.fullmatch(meant) else None
