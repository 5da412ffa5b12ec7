# SPDX-License-Identifier: Apache-2.0
"""Command-line overrides in Hydra's grammar: `+key=value`, `++key=value`, `key=value`, `~key`.

hydra-core's parser reads them; nothing else of Hydra runs, so no files are written and no key has to exist beforehand.
The last override of a key wins. Sweeps (`a=1,2`) are refused, because a process has one config.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nemo_gym._config.config_paths import remove_path
from nemo_gym._config.problems import Problems
from nemo_gym._util.secret_names import mask_argument
from nemo_gym.errors import ConfigError

_SHAPE = re.compile(r"(?P<sign>\+{0,2}|~)(?P<key>[^=+~\s][^=\s]*)(?P<rest>=.*)?", re.DOTALL)
_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w./-]*")
_STRUCTURED = set(",[]{}()'\"")


@dataclass(frozen=True)
class Overrides:
    """What a command line says: values to set, and keys to remove from what the other sources give."""

    values: dict[str, Any]
    deletions: tuple[str, ...] = ()


def parse_overrides(tokens: Iterable[str]) -> Overrides:
    """Read `tokens` in order; one error reports all tokens that cannot be read."""
    values: dict[str, Any] = {}
    deletions: list[str] = []
    problems = Problems()
    for token in tokens:
        try:
            _apply(token, values, deletions)
        except _Unreadable as error:
            masked = mask_argument(token)
            secret = "its value does not follow the grammar (not shown: it is a secret)"
            problems.add(ConfigError, f"cannot read the override {masked!r}: {error if masked == token else secret}")
    problems.raise_if_any()
    return Overrides(values, tuple(deletions))


def is_override(token: str) -> bool:
    """Return whether `token` can be read as an override."""
    try:
        _apply(token, {}, [])
    except _Unreadable:
        return False
    return True


def override_token(key: str, value: Any) -> str:
    """Return the override that sets `key` to exactly `value`, whatever characters it holds."""
    return f"++{key}={_write_value(value)}"


class _Unreadable(Exception):
    """Why a token is not an override."""


def _apply(token: str, values: dict[str, Any], deletions: list[str]) -> None:
    shape = _SHAPE.fullmatch(token)
    if shape is None:
        raise _Unreadable("expected `+key=value`, `++key=value`, `key=value` or `~key`")
    key = shape["key"]
    rest = shape["rest"]
    if "@" in key:
        raise _Unreadable("packages (`key@package`) are not supported.\nhint: write the dotted key it stands for")
    if key.split(".")[0].split("/")[0] == "hydra":
        return  # Hydra's own settings, which scripts may still pass, have no meaning here.
    if shape["sign"] == "~":
        if rest is not None:
            raise _Unreadable(f"a deletion has no value.\nhint: write `~{key}`")
        remove_path(values, tuple(key.split(".")))
        deletions.append(key)
    elif rest is None:
        raise _Unreadable(f"it has no `=`.\nhint: write `+{key}=<value>`")
    else:
        text = rest[1:]
        try:
            value = read_plain_value(key, text)
        except NotPlain:
            value = _parse_by_grammar(key, text)
        _check_interpolations(value)
        _set(values, key.split("."), value)


def _parse_by_grammar(key: str, text: str) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(f"{key}={text}")
    except HydraException as error:
        if _PLAIN_KEY.fullmatch(key) and not _STRUCTURED & set(text) and "${" not in text:
            return text.strip()  # Hydra's grammar has no place for characters such as `=`, `#`, `;`: it is plain text.
        raise _Unreadable(_explain(key, text)) from error
    if override.is_sweep_override():
        raise _Unreadable(
            "it gives several values.\n"
            f"hint: for a list write `{key}=[{text}]`, for text write `{key}={_write_value(text)}`, "
            "quoted for the shell"
        )
    return override.value()


def _check_interpolations(value: Any) -> None:
    try:
        OmegaConf.create([value])
    except OmegaConfBaseException as error:
        raise _Unreadable(
            "it holds a `${` that does not begin an interpolation.\nhint: for the characters themselves write `\\${`"
        ) from error


def _explain(key: str, text: str) -> str:
    """Return what is wrong in the user's terms; the grammar's own message is about tokens and alternatives."""
    if not _PLAIN_KEY.fullmatch(key):
        return f"{key!r} is not a key.\nhint: keys are names joined by dots, as in `+server.timeout=5`"
    quoted = f"hint: for plain text write `{key}={_write_value(text)}` (and quote it for the shell)"
    for opening, closing, what in (("[", "]", "list"), ("{", "}", "mapping"), ("(", ")", "parenthesis")):
        if text.count(opening) != text.count(closing):
            return f"{text.count(opening)} `{opening}` but {text.count(closing)} `{closing}` make no {what}.\n{quoted}"
    for quote in "'\"":
        if len(re.findall(rf"(?<!\\){quote}", text)) % 2:
            return f"a quote ({quote}) is not closed.\n{quoted}"
    if function := re.match(r"\s*(\w+)\(", text):
        return f"{function[1]!r} is not a function of the override grammar.\n{quoted}"
    return f"its value is neither text, a number, a list `[a,b]` nor a mapping `{{a: 1}}`.\n{quoted}"


def _set(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for key in path[:-1]:
        below = values.get(key)
        if not isinstance(below, dict):
            below = values[key] = {}
        values = below
    current = values.get(path[-1])
    if isinstance(current, dict) and isinstance(value, dict):
        for key, item in value.items():
            _set(current, [key], item)
    else:
        values[path[-1]] = value


def _write_value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_write_value, value))}]"
    if isinstance(value, dict):
        escaped = {re.sub(r"([\\(){}\[\]:=, \t'\"])", r"\\\1", str(key)): item for key, item in value.items()}
        return "{" + ",".join(f"{key}:{_write_value(item)}" for key, item in escaped.items()) + "}"
    # Inside quotes a backslash only matters in front of a quote.
    text = re.sub(r"(\\*)'", r"\1\1\\'", str(value))
    return "'" + re.sub(r"(\\+)$", r"\1\1", text) + "'"


# --- values that need no grammar --------------------------------------------------------------------------------------


_KEY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_WORD = re.compile(r"[A-Za-z_][\w/.-]*", re.ASCII)
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_QUOTED = re.compile(r"'[^'\\]*'")
_ITEM = re.compile(r" *(?:'[^'\\]*'|[^',]+) *(?=,|$)")
_CONSTANTS = {"true": True, "false": False, "null": None}
_RESERVED = frozenset({*_CONSTANTS, "nan", "inf"})


class NotPlain(Exception):
    """Only the grammar can tell what the value means."""


def read_plain_value(key: str, text: str) -> Any:
    """Return what `key=text` sets `key` to; raise NotPlain where that takes a parser."""
    if not _KEY.fullmatch(key):
        raise NotPlain
    if text.startswith("[") and text.endswith("]"):
        inside = text[1:-1].strip(" ")
        items = _ITEM.findall(inside)
        if ",".join(items) != inside:  # a comma inside quotes, or something that is not plain
            raise NotPlain
        return [_read_scalar(item.strip(" ")) for item in items]
    return _read_scalar(text)


def _read_scalar(text: str) -> Any:
    if _QUOTED.fullmatch(text):
        return text[1:-1]
    if _INTEGER.fullmatch(text):
        return int(text)
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _WORD.fullmatch(text) and text.lower() not in _RESERVED:
        return text
    raise NotPlain
