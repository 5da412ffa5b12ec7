# SPDX-License-Identifier: Apache-2.0
"""A FastAPI app that takes a request straight from its middleware to a plain JSON handler, known by path and method.

What lies between them in FastAPI, exception handlers, exit stack and the search for a route, comes into play only where
it is needed: for every other kind of route, and when a handler raises.
"""

from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Host, Match, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym._inprocess.fast_path import DirectHandler
from nemo_gym._inprocess.route import RAISED, GymRoute, JsonHandler
from nemo_gym._serving.guard import BodyLimit, ErrorsAsJson
from nemo_gym._serving.session import SessionCookieMiddleware
from nemo_gym._transport.failures import error_of_exit

_OWN = (ErrorsAsJson, BodyLimit, SessionCookieMiddleware)


class GymApp(FastAPI):
    """An app whose plain JSON handlers take the short way."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.router.route_class = GymRoute
        self._is_traced: bool | None = None
        self._direct_ways: _DirectWays | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self.root_path or self.middleware_stack is None or self._traced():
            return await super().__call__(scope, receive, send)
        scope["app"] = self
        return await self.middleware_stack(scope, receive, send)

    def direct(self, method: str, path: str) -> DirectHandler | None:
        """The plain JSON handler of `path`, for callers in this process; None if a call needs the whole stack."""
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        if self._direct_ways is None or self.root_path or self._traced():
            return None
        return self._direct_ways.find(method, path)

    def _traced(self) -> bool:
        if self._is_traced is None:
            # Asked once: FastAPI looks at the environment and at three providers with every request.
            telemetry = getattr(self, "_native_telemetry", None)
            self._is_traced = telemetry is not None and telemetry.enabled()
        return self._is_traced

    def build_middleware_stack(self) -> ASGIApp:
        # Innermost whatever others add, but no part of the list that they see.
        others = self.user_middleware
        self.user_middleware = [*others, Middleware(_ShortWay, router=self.router)]
        try:
            stack: Any = super().build_middleware_stack()
        finally:
            self.user_middleware = others
        # What turns every error into a reply leaves nothing to those outside of it.
        outermost: Any = others[0].cls if others else None
        while outermost is ErrorsAsJson and not isinstance(stack, ErrorsAsJson):
            stack = stack.app
        self._direct_ways = _direct_ways(self, stack)
        built: ASGIApp = stack
        return built


def _direct_ways(app: GymApp, stack: Any) -> "_DirectWays | None":
    """The ways past `stack`, if nothing stands in it but what a direct call does itself."""
    found: dict[type, Any] = {}
    layer = stack
    while not isinstance(layer, _ShortWay):
        if not isinstance(layer, _OWN) and not getattr(layer, "only_for_rollout_paths", False):
            return None
        found[type(layer)] = layer
        layer = layer.app
    if not all(kind in found for kind in _OWN):
        return None
    return _DirectWays(app, layer, found[SessionCookieMiddleware], found[BodyLimit].limit_bytes)


class _DirectWays:
    """The handlers that can be called past the middleware."""

    def __init__(self, app: GymApp, way: "_ShortWay", sessions: SessionCookieMiddleware, body_limit_bytes: int) -> None:
        self._app, self._way, self._sessions, self._limit_bytes = app, way, sessions, body_limit_bytes
        self._known: dict[JsonHandler, DirectHandler] = {}

    def find(self, method: str, path: str) -> DirectHandler | None:
        route = self._way.find(method, path)
        json_handler = route.json_handler if route is not None else None
        if route is None or json_handler is None or json_handler.plan.response_name:
            return None
        handler = self._known.get(json_handler)
        if handler is None:
            handler = DirectHandler(self._app, route, json_handler.plan, self._sessions, self._limit_bytes)
            self._known[json_handler] = handler
        return handler


class _ShortWay:
    def __init__(self, app: ASGIApp, *, router: Router) -> None:
        self.app, self._router = app, router
        self._routes: list[BaseRoute] = []
        self._paths = frozenset[str]()
        self._known: dict[tuple[str, str], GymRoute | None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        plain = scope["type"] == "http" and not scope.get("root_path") and RAISED not in scope
        route = self.find(scope["method"], scope["path"]) if plain else None
        if route is None or route.json_handler is None or not route.json_handler.takes(scope):
            return await self.app(scope, receive, send)
        scope["router"], scope["route"] = self._router, route
        scope["endpoint"], scope["path_params"] = route.endpoint, {}
        try:
            reply = await route.json_handler.reply(scope, receive, send)
        except BaseException as raised:
            scope[RAISED] = error_of_exit(raised)  # raised again where FastAPI expects it
            return await self.app(scope, receive, send)
        return await reply(scope, receive, send)

    def find(self, method: str, path: str) -> GymRoute | None:
        """The route of a plain JSON handler that FastAPI would choose as well."""
        if self._routes != self._router.routes:
            self._routes, self._known = list(self._router.routes), {}
            self._paths = frozenset(route.path for route in self._routes if isinstance(route, GymRoute))
        if path not in self._paths:
            return None
        if (method, path) not in self._known:
            self._known[method, path] = _chosen(self._routes, method, path)
        return self._known[method, path]


def _chosen(routes: list[BaseRoute], method: str, path: str) -> GymRoute | None:
    scope = {"type": "http", "method": method, "path": path}
    for route in routes:
        if isinstance(route, Host):  # goes by more than method and path
            return None
        if route.matches(scope)[0] is Match.FULL:
            return route if isinstance(route, GymRoute) and route.path == path else None
    return None
