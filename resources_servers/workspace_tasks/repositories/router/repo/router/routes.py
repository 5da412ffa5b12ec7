# SPDX-License-Identifier: Apache-2.0
"""A table of patterns."""

from urllib.parse import parse_qsl

from router.pattern import match, rank


class Router:
    """Patterns and the names of their handlers, by method."""

    def __init__(self) -> None:
        self._routes: list[tuple[str, str, str]] = []

    def add(self, method: str, pattern: str, handler: str) -> None:
        """Add a handler for a method and a pattern; a pattern has one handler for a method."""
        method = method.upper()
        if any((method, pattern) == route[:2] for route in self._routes):
            raise ValueError(f"{method} {pattern} has a handler already")
        self._routes.append((method, pattern, handler))

    def find(self, method: str, address: str) -> tuple[str, dict[str, str | int], dict[str, list[str]]]:
        """Return the handler of the most exact pattern, the values of its fields, and the query of the address.

        LookupError if no pattern fits; ValueError if one does, but for other methods.
        """
        path, _, text = address.partition("?")
        query: dict[str, list[str]] = {}
        for name, value in parse_qsl(text, keep_blank_values=True):
            query.setdefault(name, []).append(value)
        found = [
            (rank(route[1]), route, values) for route in self._routes if (values := match(route[1], path)) is not None
        ]
        if not found:
            raise LookupError(f"nothing is at {path}")
        fitting = [one for one in found if one[1][0] == method.upper()]
        if not fitting:
            raise ValueError(f"{path} does not take {method}, but {', '.join(self.list_methods(path))}")
        _, route, values = min(fitting, key=lambda one: one[0])
        return route[2], values, query

    def list_methods(self, path: str) -> list[str]:
        """Return the methods that a path takes, by name."""
        return sorted({method for method, pattern, _ in self._routes if match(pattern, path) is not None})
