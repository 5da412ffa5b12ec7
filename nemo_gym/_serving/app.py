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

from nemo_gym._serving.guard import ErrorsAsJson
from nemo_gym._serving.route import RAISED, GymRoute


class GymApp(FastAPI):
    """An app whose plain JSON handlers take the short way."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.router.route_class = GymRoute
        self._is_traced: bool | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_traced is None and scope["type"] == "http":
            # Asked once: FastAPI looks at the environment and at three providers with every request.
            telemetry = getattr(self, "_native_telemetry", None)
            self._is_traced = telemetry is not None and telemetry.enabled()
        if self._is_traced or self.root_path or scope["type"] != "http" or self.middleware_stack is None:
            return await super().__call__(scope, receive, send)
        scope["app"] = self
        return await self.middleware_stack(scope, receive, send)

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
        built: ASGIApp = stack
        return built


class _ShortWay:
    def __init__(self, app: ASGIApp, *, router: Router) -> None:
        self._app, self._router = app, router
        self._routes: list[BaseRoute] = []
        self._paths = frozenset[str]()
        self._known: dict[tuple[str, str], GymRoute | None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._find(scope) if scope["type"] == "http" and not scope.get("root_path") else None
        if route is None or route.json_handler is None or not route.json_handler.takes(scope):
            return await self._app(scope, receive, send)
        scope["router"], scope["route"] = self._router, route
        scope["endpoint"], scope["path_params"] = route.endpoint, {}
        try:
            reply = await route.json_handler.reply(scope, receive, send)
        except Exception as error:
            scope[RAISED] = error  # raised again where FastAPI expects it
            return await self._app(scope, receive, send)
        return await reply(scope, receive, send)

    def _find(self, scope: Scope) -> GymRoute | None:
        """The route of a plain JSON handler that FastAPI would choose as well."""
        if self._routes != self._router.routes:
            self._routes, self._known = list(self._router.routes), {}
            self._paths = frozenset(route.path for route in self._routes if isinstance(route, GymRoute))
        method, path = scope["method"], scope["path"]
        if path not in self._paths:
            return None
        if (method, path) not in self._known:
            self._known[method, path] = _chosen(self._routes, scope)
        return self._known[method, path]


def _chosen(routes: list[BaseRoute], scope: Scope) -> GymRoute | None:
    for route in routes:
        if isinstance(route, Host):  # goes by more than method and path
            return None
        if route.matches(scope)[0] is Match.FULL:
            return route if isinstance(route, GymRoute) and route.path == scope["path"] else None
    return None
