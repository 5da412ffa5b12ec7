# SPDX-License-Identifier: Apache-2.0
"""Patterns such as `/users/{id:int}/files/{path*}`."""


def split_path(path: str) -> list[str]:
    """Return the parts of a path; slashes at its ends and doubled ones do not count."""
    return [part for part in path.split("/") if part]


def match(pattern: str, path: str) -> dict[str, str | int] | None:
    """Return the values of a pattern's fields; None if the path does not fit.

    `{name}` takes one part, `{name:int}` one that is a whole number, and `{name*}`, at the end, one or more.
    """
    wanted, parts = split_path(pattern), split_path(path)
    values: dict[str, str | int] = {}
    for number, part in enumerate(wanted):
        if number >= len(parts):
            return None
        if not part.startswith("{"):
            if part != parts[number]:
                return None
            continue
        name, _, kind = part[1:-1].partition(":")
        if name.endswith("*"):
            values[name[:-1]] = "/".join(parts[number:])
            return values
        if kind == "int":
            if not parts[number].isdecimal():
                return None
            values[name] = int(parts[number])
        else:
            values[name] = parts[number]
    return values if len(parts) == len(wanted) else None


def rank(pattern: str) -> tuple[int, ...]:
    """Return how exact a pattern is, part by part: the smaller, the more exact."""
    ranks = []
    for part in split_path(pattern):
        if not part.startswith("{"):
            ranks.append(0)
        elif part.endswith("*}"):
            ranks.append(3)
        else:
            ranks.append(1 if part.endswith(":int}") else 2)
    return tuple(ranks)
