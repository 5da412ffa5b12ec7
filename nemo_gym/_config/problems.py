# SPDX-License-Identifier: Apache-2.0
"""Collects what is wrong with a config, so that a user sees all of it at once.

It holds texts and their kinds; finding problems and phrasing them is done where they occur.
"""

from nemo_gym.errors import ConfigError, ConfigProblems


class Problems:
    """The problems found so far; empty means the config is fine."""

    def __init__(self) -> None:
        self._texts: dict[type[ConfigError], list[str]] = {}

    def add(self, kind: type[ConfigError], text: str) -> None:
        texts = self._texts.setdefault(kind, [])
        if text not in texts:
            texts.append(text)

    def extend(self, other: "Problems") -> None:
        for kind, texts in other._texts.items():
            for text in texts:
                self.add(kind, text)

    def listed(self) -> list[tuple[type[ConfigError], str]]:
        """Every problem by itself, with its kind."""
        return [(kind, text) for kind, texts in self._texts.items() for text in texts]

    def __bool__(self) -> bool:
        return bool(self._texts)

    def errors(self) -> list[ConfigError]:
        """One error per kind, each listing all of its kind."""
        return [kind("\n\n".join(texts)) for kind, texts in self._texts.items()]

    def raise_if_any(self) -> None:
        errors = self.errors()
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ConfigProblems(errors)
