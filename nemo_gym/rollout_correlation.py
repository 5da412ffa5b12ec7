# SPDX-License-Identifier: Apache-2.0
"""Track which rollout the running code works for: the id of a run request, and a context that carries it across awaits.

`nemo_gym.model_call_capture` and `nemo_gym.token_id_capture` record calls under this id.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from nemo_gym._util.rollout_paths import compose_rollout_id, remove_rollout_prefix, split_rollout_prefix
from nemo_gym._util.row_keys import (
    ATTEMPT_INDEX_KEY_NAME,
    ROLLOUT_ID_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_TASK_ID_KEYS = ("task_id", "problem_id", "instance_id", TASK_INDEX_KEY_NAME)
_CURRENT_ROLLOUT_ID: ContextVar[str | None] = ContextVar("nemo_gym_rollout_id", default=None)


def maybe_rollout_id_from_run_body(body: BaseModel | Mapping[str, Any]) -> str | None:
    """Return the rollout id of a run request or a result row; None if it carries no indices.

    Raise ValueError for an id that cannot be a path segment.
    """
    return compose_rollout_id(
        _get_field(body, ROLLOUT_ID_KEY_NAME),
        _get_field(body, TASK_INDEX_KEY_NAME),
        _get_field(body, ROLLOUT_INDEX_KEY_NAME),
        _get_field(body, ATTEMPT_INDEX_KEY_NAME),
    )


def task_id_from_run_body(body: BaseModel | Mapping[str, Any]) -> str | None:
    """Return the task id of a run request or a row, as text: the environment's own id, else the task's index."""
    found = (_get_field(body, key) for key in _TASK_ID_KEYS)
    return next((str(value) for value in found if value is not None), None)


def current_rollout_id() -> str | None:
    """Return the rollout that the running code works for, if any."""
    return _CURRENT_ROLLOUT_ID.get()


@contextmanager
def rollout_context(rollout_id: str | None) -> Iterator[str | None]:
    """Make everything started inside work for `rollout_id`, or for no rollout if it is None."""
    token = _CURRENT_ROLLOUT_ID.set(rollout_id)
    try:
        yield rollout_id
    finally:
        _CURRENT_ROLLOUT_ID.reset(token)


class RolloutContextMiddleware:
    """Strip `/ng-rollout/<id>` from the request path and run the rest of the app inside that rollout's context."""

    only_for_rollout_paths = True

    def __init__(self, app: "ASGIApp") -> None:
        self.app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        split = split_rollout_prefix(scope["path"])
        if split.rollout_id is None:
            await self.app(scope, receive, send)
            return
        with rollout_context(split.rollout_id):
            await self.app(remove_rollout_prefix(scope, split), receive, send)


class RolloutPathMiddleware:
    """Make the rollout named in a request's path the current one. The path stays unchanged: others read it too."""

    only_for_rollout_paths = True

    def __init__(self, app: "ASGIApp") -> None:
        self.app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        rollout_id = split_rollout_prefix(str(scope.get("path", ""))).rollout_id
        if rollout_id is None:
            return await self.app(scope, receive, send)
        with rollout_context(rollout_id):
            return await self.app(scope, receive, send)


def _get_field(body: BaseModel | Mapping[str, Any], key: str) -> Any:
    if not isinstance(body, BaseModel):
        return body.get(key)
    extra = body.__pydantic_extra__
    if extra and key in extra:
        return extra[key]
    name = _map_field_names(type(body)).get(key)
    return getattr(body, name) if name is not None else None


@lru_cache(maxsize=256)
def _map_field_names(kind: type[BaseModel]) -> dict[Any, str]:
    """Map names and aliases to fields: index fields need an alias, as no field name starts with an underscore."""
    return {
        alias: name
        for name, field in kind.model_fields.items()
        for alias in (name, field.alias, field.validation_alias, field.serialization_alias)
        if isinstance(alias, str)
    }
