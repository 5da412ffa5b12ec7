# SPDX-License-Identifier: Apache-2.0
"""Collect what is wrong with a config, so that a user sees all of it at once, and explain what pydantic found.

All other messages are written where the problem is found.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from nemo_gym._config.config_paths import KeyPath, get_child
from nemo_gym._config.secret_lookup import hide_secrets, is_secret_key
from nemo_gym._util.known_secrets import KNOWN_SECRETS
from nemo_gym._util.nearest import nearest_spelling
from nemo_gym._util.secret_names import is_headers_key
from nemo_gym.errors import ConfigError, ConfigProblems

if TYPE_CHECKING:  # overrides are read without pydantic, which takes a while to load
    from omegaconf.errors import OmegaConfBaseException
    from pydantic import ValidationError


class Problems:
    """The problems found so far; empty means the config is fine."""

    def __init__(self) -> None:
        self._texts: dict[type[ConfigError], list[str]] = {}

    def add(self, kind: type[ConfigError], text: str) -> None:
        texts = self._texts.setdefault(kind, [])
        if text not in texts:
            texts.append(text)

    @contextmanager
    def catch(self) -> Iterator[None]:
        """Add the ConfigError that the block raises, if it raises one."""
        try:
            yield
        except ConfigError as error:
            self.add(type(error), str(error))

    def extend(self, other: "Problems") -> None:
        for kind, texts in other._texts.items():
            for text in texts:
                self.add(kind, text)

    def pairs(self) -> list[tuple[type[ConfigError], str]]:
        """Return each problem with its kind."""
        return [(kind, text) for kind, texts in self._texts.items() for text in texts]

    def __bool__(self) -> bool:
        return bool(self._texts)

    def errors(self) -> list[ConfigError]:
        """Return one error per problem, or a single one if all are of one kind, so that callers can catch it."""
        if len(self._texts) == 1:
            return [kind("\n\n".join(texts)) for kind, texts in self._texts.items()]
        return [kind(text) for kind, text in self.pairs()]

    def raise_if_any(self) -> None:
        errors = self.errors()
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ConfigProblems(errors)


def read_reason(error: "OmegaConfBaseException") -> str:
    """Return the first line of what OmegaConf says, without the place, which we know better."""
    return (error.msg or str(error)).splitlines()[0]


# --- what pydantic found ----------------------------------------------------------------------------------------------


IS_MISSING = "is missing"
_WHOLE = "must be a whole number"
_NUMBER = "must be a number"
_MAPPING = "must be a mapping"
_TEXTS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": _MAPPING,
    "extra_forbidden": "is not a known setting",
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_type": _WHOLE,
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "missing": IS_MISSING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "string_type": "must be text",
    "too_short": "needs at least {min_length}",
    "too_long": "takes at most {max_length}",
    "tuple_type": "must be a list",
}
_CHOICES = {"enum": "expected", "literal_error": "expected", "union_tag_invalid": "expected_tags"}
_WITHOUT_VALUE = frozenset({"extra_forbidden", "missing", "value_error"})
_LONGEST_VALUE = 60


def explain(error: "ValidationError", data: Any) -> dict[KeyPath, str]:
    """Return what is wrong with `data`, by path; a value that fits no member of a union is one mistake."""
    found: dict[KeyPath, list[Any]] = {}
    for mistake in error.errors(include_url=False):
        found.setdefault(_place_in(data, mistake), []).append(mistake)
    # A mistake inside a value says more than the remark that the value fits no other member of a union.
    inner = [
        path for path in found if not any(len(path) < len(other) and other[: len(path)] == path for other in found)
    ]
    return {path: explain_place(path, found[path]) for path in inner}


def describe(mistake: Mapping[str, Any]) -> str:
    """Return what a value must be, without the value."""
    kind = mistake["type"]
    context = mistake.get("ctx") or {}
    if kind in _CHOICES and _CHOICES[kind] in context:
        subject = "`type` must" if kind == "union_tag_invalid" else "must"
        return f"{subject} be one of {context[_CHOICES[kind]]}"
    if kind in _TEXTS:
        return _TEXTS[kind].format_map(context)
    text = str(mistake["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return text.replace("Input should be", "must be").replace("Input should", "should")


def explain_place(path: KeyPath, mistakes: Sequence[Any]) -> str:
    """Return what is wrong at `path`, where all `mistakes` were made, and the value found there."""
    wanted = " or ".join(dict.fromkeys(map(describe, mistakes))).replace(" or must be ", " or ")
    wanted = wanted.removeprefix(f"{path[-1]} " if path else "")  # the caller names the place
    last = mistakes[-1]
    kind = last["type"]
    context = last.get("ctx") or {}
    if kind in _WITHOUT_VALUE:
        return wanted
    value = context.get("tag", last["input"])
    choices = re.findall(r"'([^']*)'", str(context.get(_CHOICES.get(kind, ""), "")))
    close = nearest_spelling(str(value), choices, limit=1)
    return wanted + _show(value, path) + (f". Did you mean {close[0]!r}?" if close else "")


def _place_in(data: Any, mistake: Mapping[str, Any]) -> KeyPath:
    """Return the path of a mistake, without the names of types that pydantic adds for unions."""
    path: list[str] = []
    *above, last = mistake["loc"] or ("",)
    for part in (*above, last):
        try:
            data = get_child(data, str(part))
        except KeyError:
            continue
        path.append(str(part))
    return (*path, str(last)) if mistake["type"] == "missing" else tuple(path)


def _show(value: Any, path: KeyPath) -> str:
    if any(is_secret_key(key) or is_headers_key(key) for key in path):
        return ""
    if value == "":
        return ", but it is empty (is a shell variable unset?)"
    masked = [deepcopy(value)]
    hide_secrets(masked)
    shown = KNOWN_SECRETS.mask(repr(masked[0]))
    return f", not {shown if len(shown) <= _LONGEST_VALUE else shown[:_LONGEST_VALUE] + '…'}"
