# SPDX-License-Identifier: Apache-2.0
"""Which routes become tools, with which schema, and which cannot."""

import logging
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from fastapi import Body, Cookie, Depends, FastAPI, Form, Header, Request
from pydantic import BaseModel, Field

from nemo_gym._servers.mcp.harvest import check_tools, harvest_tools
from nemo_gym._servers.mcp.protocol import MCPCatchall, MCPTool
from nemo_gym.errors import ConfigError


class Leaf(BaseModel):
    kind: Literal["leaf"] = "leaf"


class Node(BaseModel):
    kind: Literal["node"] = "node"
    children: list["Tree"] = []


Tree = Annotated[Leaf | Node, Field(discriminator="kind")]
Node.model_rebuild()


class Planted(BaseModel):
    tree: Tree


def app_with(handler: Callable[..., Any], path: str = "/tool", **options: Any) -> FastAPI:
    app = FastAPI()
    app.post(path, **options)(handler)
    return app


def only_tool(handler: Callable[..., Any], **options: Any) -> MCPTool:
    (tool,) = harvest_tools(app_with(handler, **options)).tools
    return tool


async def nothing() -> None:
    """Does nothing."""


def test_a_tool_has_the_name_of_its_route_and_the_docstring_of_its_handler():
    assert only_tool(nothing) == MCPTool(
        "tool", "/tool", "Does nothing.", {"type": "object", "additionalProperties": True}
    )


@pytest.mark.parametrize("path", ["/verify", "/seed_session", "/aggregate_metrics", "/v1/responses", "/tool/{name}"])
def test_reserved_and_parameterised_routes_are_no_tools(path: str):
    assert harvest_tools(app_with(nothing, path)).tools == []


def test_only_post_makes_a_tool():
    app = FastAPI()
    app.get("/state")(nothing)
    app.put("/state")(nothing)
    assert harvest_tools(app).tools == []


def test_a_route_that_is_not_in_the_documentation_is_a_tool_all_the_same():
    assert only_tool(nothing, include_in_schema=False).name == "tool"


def test_looking_for_tools_leaves_the_documentation_as_it_was():
    app = app_with(nothing, include_in_schema=False)
    harvest_tools(app)
    assert app.openapi()["paths"] == {}


def test_the_schema_of_a_body_stands_alone():
    async def plant(body: Planted) -> None: ...

    schema = only_tool(plant).input_schema
    assert schema["type"] == "object"
    assert schema["properties"]["tree"]["discriminator"]["mapping"] == {"leaf": "#/$defs/Leaf", "node": "#/$defs/Node"}
    assert set(schema["$defs"]) == {"Leaf", "Node"}
    assert "#/components" not in str(schema)


def test_a_body_that_refers_to_itself_keeps_its_definition():
    async def grow(body: Node) -> None: ...

    schema = only_tool(grow).input_schema
    assert (schema["type"], set(schema["$defs"])) == ("object", {"Leaf", "Node"})


def test_a_body_that_may_be_left_out_has_the_schema_of_the_body():
    async def maybe(body: Leaf | None = None) -> None: ...

    assert set(only_tool(maybe).input_schema["properties"]) == {"kind"}


def test_a_choice_of_objects_is_an_object():
    async def either(body: Leaf | Planted) -> None: ...

    schema = only_tool(either).input_schema
    assert schema["type"] == "object"
    assert schema["anyOf"] == [{"$ref": "#/$defs/Leaf"}, {"$ref": "#/$defs/Planted"}]


def test_several_body_parameters_are_the_arguments_of_the_tool():
    async def add(a: Annotated[int, Body()], b: Annotated[int, Body()] = 0) -> None: ...

    schema = only_tool(add).input_schema
    assert (set(schema["properties"]), schema["required"]) == ({"a", "b"}, ["a"])


@pytest.mark.parametrize("annotation", [dict[str, Any], Any])
def test_a_body_of_any_shape_is_an_object(annotation: Any):
    async def anything(body=Body()) -> None: ...

    anything.__annotations__["body"] = annotation
    assert only_tool(anything).input_schema["type"] == "object"


def test_request_and_dependencies_are_no_arguments():
    async def handler(
        request: Request, x: Annotated[int, Depends(lambda: 1)], tenant: Annotated[str, Header()] = ""
    ) -> None: ...

    assert "properties" not in only_tool(handler).input_schema


def test_a_route_with_query_parameters_is_left_out_and_the_log_says_so(caplog: pytest.LogCaptureFixture):
    async def search(text: str) -> None: ...

    with caplog.at_level(logging.WARNING):
        assert harvest_tools(app_with(search)).tools == []
    assert "POST /tool is not offered over MCP: it takes query parameters" in caplog.text


async def takes_a_list(body: list[int]) -> None: ...
async def takes_a_choice_with_text(body: Leaf | str) -> None: ...
async def takes_a_form(text: Annotated[str, Form()]) -> None: ...
async def needs_a_header(tenant: Annotated[str, Header()]) -> None: ...
async def needs_a_cookie(tenant: Annotated[str, Cookie()]) -> None: ...


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (takes_a_list, "its body is not a JSON object but array"),
        (takes_a_choice_with_text, "its body is not a JSON object but string"),
        (takes_a_form, "its body is application/x-www-form-urlencoded, not JSON"),
        (needs_a_header, "it requires the header 'tenant'"),
        (needs_a_cookie, "it requires the cookie 'tenant'"),
    ],
)
def test_a_route_that_cannot_be_called_as_a_tool_is_an_error(handler: Callable[..., Any], reason: str):
    with pytest.raises(ConfigError, match=f"POST '/tool': {reason}"):
        harvest_tools(app_with(handler))


def test_all_routes_that_cannot_be_tools_are_reported_at_once():
    app = app_with(takes_a_list, "/first")
    app.post("/second")(takes_a_form)
    with pytest.raises(ConfigError, match=r"(?s)'/first'.*'/second'.*hint: "):
        harvest_tools(app)


@pytest.mark.parametrize("path", ["/{path}", "/{path:path}"])
def test_a_catch_all_route_is_found_and_makes_tools(path: str):
    async def any_tool(path: str) -> None:
        """Runs any tool."""

    found = harvest_tools(app_with(any_tool, path))
    assert found.tools == []
    assert found.catchall == MCPCatchall(path, "Runs any tool.")
    assert found.catchall.tool("mail", "Send it.").path == "/mail"


def test_one_path_registered_twice_is_two_tools_of_one_name():
    app = app_with(nothing)
    app.post("/tool")(takes_nothing_either)
    with pytest.raises(ConfigError, match="tool 'tool': POST '/tool' and POST '/tool'"):
        check_tools(harvest_tools(app).tools)


async def takes_nothing_either() -> None: ...


def test_what_is_not_a_tool_is_refused():
    with pytest.raises(ConfigError, match="`mcp_tools` returned 'mail', which is not a tool"):
        check_tools(["mail"])  # type: ignore[list-item]


@pytest.mark.parametrize("name", ["verify", "seed_session", "aggregate_metrics", "mcp"])
def test_a_reserved_name_is_refused(name: str):
    with pytest.raises(ConfigError, match=f"the tool name '{name}' is reserved"):
        check_tools([MCPTool(name, "/other")])
