# SPDX-License-Identifier: Apache-2.0
"""A FastAPI app that takes a request straight from its middleware to a plain JSON handler, known by path and method.

What lies between them in FastAPI, exception handlers, exit stack and the search for a route, comes into play only where
it is needed: for every other kind of route, and when a handler raises.
"""

from typing import Any, Protocol, runtime_checkable

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Host, Match, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym._servers.direct_calls.fast_path import HandlerFastPath
from nemo_gym._servers.direct_calls.route import RAISED, GymRoute
from nemo_gym._servers.http.guard import BodyLimit, ErrorsAsJson
from nemo_gym._servers.http.session_cookie import SessionCookieMiddleware
from nemo_gym._transport.failures import convert_exit

_OWN = (ErrorsAsJson, BodyLimit, SessionCookieMiddleware)


@runtime_checkable
class OnlyForRolloutPaths(Protocol):
    """A middleware that leaves a request alone unless its path names a rollout."""

    app: ASGIApp
    only_for_rollout_paths: bool


class GymApp(FastAPI):
    """An app whose plain JSON handlers are called without FastAPI's machinery, and by fast paths in this process."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.router.route_class = GymRoute
        self._is_traced = False
        self._layers: dict[type, Any] | None = None
        self._fast_paths: dict[tuple[str, str], HandlerFastPath] = {}
        self._routes_then: list[BaseRoute] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self.root_path or self.middleware_stack is None or self._is_traced:
            return await super().__call__(scope, receive, send)
        scope["app"] = self
        return await self.middleware_stack(scope, receive, send)

    def find_fast_path(self, method: str, path: str) -> HandlerFastPath | None:
        """Return the way to the plain JSON handler of `path`; None if a call needs the whole stack."""
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        layers = self._layers
        if layers is None or self.root_path:
            return None
        if self._routes_then != self.router.routes:
            self._routes_then = list(self.router.routes)
            self._fast_paths = {}
        fast_path = self._fast_paths.get((method, path))
        if fast_path is not None:
            return fast_path
        route = layers[_JsonRouter].find_route(method, path)
        handler = route.json_handler if route is not None else None
        if route is None or handler is None or handler.plan.response_name:
            return None
        sessions = layers[SessionCookieMiddleware]
        bound = layers[BodyLimit]
        fast_path = self._fast_paths[method, path] = HandlerFastPath(self, route, handler.plan, sessions, bound)
        return fast_path

    def build_middleware_stack(self) -> ASGIApp:
        # Innermost whatever others add, but no part of the list that they see.
        others = self.user_middleware
        self.user_middleware = [*others, Middleware(_JsonRouter, router=self.router)]
        try:
            stack: Any = super().build_middleware_stack()
        finally:
            self.user_middleware = others
        # What turns every error into a reply leaves nothing to those outside of it.
        outermost: Any = others[0].cls if others else None
        while outermost is ErrorsAsJson and not isinstance(stack, ErrorsAsJson):
            stack = stack.app
        # Asked once: FastAPI looks at the environment and at three providers with every request.
        telemetry = getattr(self, "_native_telemetry", None)
        self._is_traced = telemetry is not None and telemetry.enabled()
        self._layers = None if self._is_traced else _list_known_layers(stack)
        self._fast_paths = {}
        built: ASGIApp = stack
        return built


def _list_known_layers(stack: Any) -> dict[type, Any] | None:
    """Return the layers of `stack` by class, if it has all those that a fast path stands in for and no other."""
    layers: dict[type, Any] = {}
    layer = stack
    while not isinstance(layer, _JsonRouter):
        if not isinstance(layer, (*_OWN, OnlyForRolloutPaths)):
            return None
        layers[type(layer)] = layer
        layer = layer.app
    layers[_JsonRouter] = layer
    return layers if all(kind in layers for kind in _OWN) else None


class _JsonRouter:
    """Takes a request for a plain JSON handler to it, and leaves every other to FastAPI's own router."""

    def __init__(self, app: ASGIApp, *, router: Router) -> None:
        self.app = app
        self._router = router
        self._routes: list[BaseRoute] = []
        self._paths = frozenset[str]()
        self._known: dict[tuple[str, str], GymRoute | None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        plain = scope["type"] == "http" and not scope.get("root_path") and RAISED not in scope
        route = self.find_route(scope["method"], scope["path"]) if plain else None
        if route is None or route.json_handler is None or not route.json_handler.takes(scope):
            return await self.app(scope, receive, send)
        scope["router"] = self._router
        scope["route"] = route
        scope["endpoint"] = route.endpoint
        scope["path_params"] = {}
        try:
            reply = await route.json_handler.reply(scope, receive, send)
        except BaseException as raised:
            scope[RAISED] = convert_exit(raised)  # raised again where FastAPI expects it
            return await self.app(scope, receive, send)
        return await reply(scope, receive, send)

    def find_route(self, method: str, path: str) -> GymRoute | None:
        """Return the route of a plain JSON handler that FastAPI would choose as well."""
        if self._routes != self._router.routes:
            self._routes = list(self._router.routes)
            self._known = {}
            self._paths = frozenset(route.path for route in self._routes if isinstance(route, GymRoute))
        if path not in self._paths:
            return None
        if (method, path) not in self._known:
            self._known[method, path] = _choose_route(self._routes, method, path)
        return self._known[method, path]


def _choose_route(routes: list[BaseRoute], method: str, path: str) -> GymRoute | None:
    scope = {"type": "http", "method": method, "path": path}
    for route in routes:
        if isinstance(route, Host):  # goes by more than method and path
            return None
        if route.matches(scope)[0] is Match.FULL:
            return route if isinstance(route, GymRoute) and route.path == path else None
    return None
