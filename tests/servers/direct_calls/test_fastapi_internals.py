# SPDX-License-Identifier: Apache-2.0
"""What we rely on in FastAPI and Starlette beyond what they document, and the versions in which it was checked.

Whoever raises the upper bound of `fastapi` in pyproject.toml runs this first: it names what has gone.
"""

import inspect
import tomllib
from importlib.metadata import version

import pytest
from fastapi import Body, FastAPI, Request, Response
from fastapi.datastructures import DefaultPlaceholder
from fastapi.dependencies.models import Dependant
from fastapi.params import Body as BodyParam
from fastapi.routing import APIRoute
from packaging.requirements import Requirement
from pydantic import BaseModel

from nemo_gym import PARENT_DIR


class City(BaseModel):
    name: str


async def look_up(request: Request, response: Response, body: City = Body()) -> City:
    return body


class Noting:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        await self.app(scope, receive, send)


def route() -> APIRoute:
    return APIRoute("/look_up", look_up, methods=["POST"])


def test_the_installed_fastapi_is_one_that_the_package_allows():
    declared = tomllib.loads((PARENT_DIR / "pyproject.toml").read_text())["project"]["dependencies"]
    (fastapi,) = [one for one in map(Requirement, declared) if one.name == "fastapi"]
    assert any(bound.operator == "<" for bound in fastapi.specifier)
    assert fastapi.specifier.contains(version("fastapi"))


@pytest.mark.parametrize("kind", ["path", "query", "header", "cookie", "body"])
def test_a_route_lists_the_parameters_of_its_handler_by_kind(kind):
    names = [one.name for one in getattr(route().dependant, f"{kind}_params")]
    assert names == (["body"] if kind == "body" else [])


def test_a_route_says_what_is_injected_into_its_handler():
    needs = route().dependant
    assert isinstance(needs, Dependant)
    assert (needs.request_param_name, needs.response_param_name) == ("request", "response")
    assert needs.call is look_up
    assert needs.dependencies == []
    assert hasattr(needs, "background_tasks_param_name")
    assert hasattr(needs, "websocket_param_name")
    assert hasattr(needs, "http_connection_param_name")


def test_a_body_parameter_says_its_type_and_its_default():
    (body,) = route().dependant.body_params
    assert type(body.field_info) is BodyParam
    assert body.field_info.annotation is City
    assert body.field_info.is_required()


def test_a_route_says_how_it_would_answer():
    plain = route()
    assert isinstance(plain.response_class, DefaultPlaceholder)
    assert plain.response_model is City
    assert plain.response_field is not None
    assert plain.status_code is None
    assert plain.response_model_by_alias
    for name in ("include", "exclude", "exclude_unset", "exclude_defaults", "exclude_none"):
        assert not getattr(plain, f"response_model_{name}")
    assert callable(plain.app)
    assert inspect.iscoroutinefunction(plain.get_route_handler())


async def test_a_request_keeps_what_it_has_read_in_attributes():
    async def receive():
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message):
        raise AssertionError("nothing is sent")

    request = Request({"type": "http", "headers": [(b"cookie", b"a=1")]}, receive, send)
    assert request._receive is receive
    assert request._send is send
    assert not request._stream_consumed
    assert await request.body() == request._body == b"{}"
    assert request._stream_consumed
    assert request.cookies == request._cookies == {"a": "1"}


def test_the_middleware_stack_is_a_chain_of_apps_around_the_router():
    app = FastAPI()
    app.add_middleware(Noting)
    layer = app.build_middleware_stack()
    kinds = [type(layer)]
    while layer is not app.router:
        layer = layer.app
        kinds.append(type(layer))
    assert Noting in kinds
    assert app.middleware_stack is None
    assert [added.cls for added in app.user_middleware] == [Noting]
