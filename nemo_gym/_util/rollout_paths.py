# SPDX-License-Identifier: Apache-2.0
"""Rollout ids and the URL prefix that carries them: `/ng-rollout/<id>[/training-token-capture]/<the real path>`.

Pure functions. Who sets the id, and what is recorded under it, is decided elsewhere.
"""

import re
from collections.abc import MutableMapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

ROLLOUT_ID = "nemo_gym.rollout_id"
"""Scope key: the rollout that the path named."""
ROLLOUT_PATH_PREFIX = "ng-rollout"
TOKEN_CAPTURE_PATH_SEGMENT = "training-token-capture"

_MARKER = f"/{ROLLOUT_PATH_PREFIX}/"
# An id becomes a path segment and a file name, so it can hold neither a slash nor a leading dot.
_ROLLOUT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PREFIX = re.compile(rf"{_MARKER}({_ROLLOUT_ID.pattern})(/{TOKEN_CAPTURE_PATH_SEGMENT}(?=/|$))?(?=/|$)")


class SplitPath(NamedTuple):
    rollout_id: str | None
    token_capture: bool
    rest: str


def check_rollout_id(rollout_id: object) -> str:
    """Return `rollout_id` if it can be a path segment and a file name, else raise ValueError."""
    if isinstance(rollout_id, str) and _ROLLOUT_ID.fullmatch(rollout_id):
        return rollout_id
    raise ValueError(
        f"Invalid rollout id {rollout_id!r}.\n"
        f"hint: an id starts with a letter or a digit and holds only letters, digits, '.', '_' and '-'"
    )


def compose_rollout_id(explicit: object, task: object, rollout: object, attempt: object) -> str | None:
    """The id of one attempt: `explicit` or `<task>-<rollout>`, and `-a<attempt>` from the first retry on."""
    if explicit is None and (task is None or rollout is None):
        return None
    base = check_rollout_id(explicit if explicit is not None else f"{task}-{rollout}")
    if isinstance(attempt, int) and attempt > 0:
        return f"{base}-a{attempt}"
    return base


def split_rollout_prefix(path: str) -> SplitPath:
    """Take the rollout prefix off `path`; a path without a well-formed one comes back as it was."""
    if not path.startswith(_MARKER):
        return SplitPath(None, False, path)
    rollout_id = None
    token_capture = False
    rest = path
    # A base URL that already had a prefix may be given a second one on the way; the outermost is the caller's own.
    while match := _PREFIX.match(rest):
        rollout_id = rollout_id or match[1]
        token_capture = token_capture or match[2] is not None
        rest = rest[match.end() :]
    return SplitPath(rollout_id, token_capture, rest or "/")


def remove_rollout_prefix(scope: MutableMapping[str, Any], split: SplitPath) -> dict[str, Any]:
    """A copy of an ASGI `scope` whose path is what follows the prefix; the caller's own scope stays untouched."""
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
    path, separator, query = raw_path.decode("latin-1").partition("?")
    raw_rest = split_rollout_prefix(path).rest + separator + query
    return {**scope, "path": split.rest, "raw_path": raw_rest.encode("latin-1"), ROLLOUT_ID: split.rollout_id}


def rollout_path_prefix(rollout_id: str | None, *, token_capture: bool = False) -> str:
    """`/ng-rollout/<id>`, with the token-capture segment if asked; empty without an id."""
    if rollout_id is None:
        return ""
    prefix = f"{_MARKER}{check_rollout_id(rollout_id)}"
    return f"{prefix}/{TOKEN_CAPTURE_PATH_SEGMENT}" if token_capture else prefix


def apply_rollout_prefix(base_url: str, rollout_id: str | None, *, token_capture: bool = False) -> str:
    """Put the rollout prefix in front of the path of `base_url`, in place of one that is already there."""
    if rollout_id is None:
        return base_url
    parts = urlsplit(base_url)
    path = split_rollout_prefix(parts.path).rest
    prefix = rollout_path_prefix(rollout_id, token_capture=token_capture)
    return urlunsplit(parts._replace(path=prefix + (path if path != "/" else "")))
