# SPDX-License-Identifier: Apache-2.0
"""The FastAPI app of a server, whose plain JSON handlers other servers of this process can call directly."""

import functools
from typing import Any, Protocol, runtime_checkable

from fastapi import FastAPI
from starlette.routing import BaseRoute, Host, Match

from nemo_gym._servers.direct_calls.route import GymRoute, Stack
from nemo_gym._servers.direct_calls.running_apps import CallHandler
from nemo_gym._servers.http.guard import BodyLimit, ErrorsAsJson
from nemo_gym._servers.http.session_cookie import SessionCookieMiddleware

_OWN = (ErrorsAsJson, BodyLimit, SessionCookieMiddleware)


@runtime_checkable
class OnlyForRolloutPaths(Protocol):
    """A middleware that leaves a request alone unless its path names a rollout."""

    only_for_rollout_paths: bool


class GymApp(FastAPI):
    """An app that calls plain JSON handlers without FastAPI's machinery, and lets them be called directly."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.router.route_class = GymRoute
        self._examined: Any = None
        self._stack: Stack | None = None
        self._routes_then: list[BaseRoute] = []
        self._paths = frozenset[str]()
        self._handlers: dict[tuple[str, str], CallHandler | None] = {}

    def find_handler(self, method: str, path: str) -> CallHandler | None:
        """Return what calls the plain JSON handler of `path`; None if a call needs the whole stack."""
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        if self._examined is not self.middleware_stack or self._routes_then != self.router.routes:
            self._examined = self.middleware_stack
            self._stack = self._find_own_stack()
            self._routes_then = list(self.router.routes)
            self._paths = frozenset(route.path for route in self._routes_then if isinstance(route, GymRoute))
            self._handlers = {}
        if self._stack is None or self.root_path or path not in self._paths:
            return None
        if (method, path) not in self._handlers:
            self._handlers[method, path] = self._choose_handler(self._stack, method, path)
        return self._handlers[method, path]

    def _find_own_stack(self) -> Stack | None:
        """Return what stands around the routes; None if that is more, or less, than a direct call stands in for."""
        telemetry = getattr(self, "_native_telemetry", None)
        if telemetry is not None and telemetry.enabled():
            return None
        found: dict[type, Any] = {}
        layer: Any = self.middleware_stack
        for added in self.user_middleware:
            kind: Any = added.cls
            while layer is not None and type(layer) is not kind:
                layer = getattr(layer, "app", None)
            if not isinstance(layer, (*_OWN, OnlyForRolloutPaths)):
                return None
            found[type(layer)] = layer
        if not found.keys() >= set(_OWN):
            return None
        return Stack(self, found[SessionCookieMiddleware], found[BodyLimit])

    def _choose_handler(self, stack: Stack, method: str, path: str) -> CallHandler | None:
        """Return what calls the handler of the route that the router would choose."""
        scope = {"type": "http", "method": method, "path": path}
        for route in self._routes_then:
            if isinstance(route, Host):  # goes by more than method and path
                return None
            if route.matches(scope)[0] is not Match.FULL:
                continue
            handler = None
            if isinstance(route, GymRoute) and route.path == path:
                handler = route.json_handler
            if handler is None or not handler.takes_direct_calls:
                return None
            return functools.partial(handler.answer, stack)
        return None
