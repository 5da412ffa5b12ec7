# SPDX-License-Identifier: Apache-2.0
"""A resources server whose tools are offered over MCP: what its session, its tools and its verifier see."""

import copy
from collections import Counter
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, HTTPException, Request
from pydantic import BaseModel, Field, PrivateAttr

from nemo_gym.base_resources_server import (
    NEMO_GYM_MCP_METADATA_KEY,
    NEMO_GYM_MCP_SESSION_TOKEN_HEADER,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.errors import ConfigError
from nemo_gym.mcp_auto_exposure import (
    MCPCatchall,
    MCPTool,
    bind_route,
    install_auto_exposure,
    maybe_auto_expose,
)
from nemo_gym.testing import asked, build_server, reply, tool_call


class Place(BaseModel):
    city: str = Field(description="Where")


class WeatherServer(SimpleResourcesServer):
    """Counts the questions of each session."""

    _asked: Counter[str] = PrivateAttr(default_factory=Counter)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/get_weather")(self.get_weather)
        app.post("/fail")(self.fail)
        app.post("/refuse")(self.refuse)
        return app

    async def get_weather(self, body: Place, request: Request) -> dict[str, Any]:
        """The weather in a city."""
        session = request.session["session_id"]
        self._asked[session] += 1
        return {"city": body.city, "asked": self._asked[session]}

    async def fail(self) -> None:
        raise ValueError("the station is closed")

    async def refuse(self) -> None:
        raise HTTPException(404, "no such station")

    async def seed_session(self, body: dict[str, Any]) -> BaseSeedSessionResponse:
        return BaseSeedSessionResponse()

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        called = [item.name for item in body.response.output if item.type == "function_call"]
        return BaseVerifyResponse(**body.model_dump(), reward=float(called == ["get_weather"]))


def exposed(cls: type[SimpleResourcesServer] = WeatherServer, **config: Any) -> FastAPI:
    server = build_server(cls, name="weather", **{"expose_tools_over_mcp": True, **config})
    return server.build_complete_app(server.server_client.global_config_dict)


def caller(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://weather")


async def seeded(rest: httpx.AsyncClient, **body: Any) -> dict[str, str]:
    """The headers that open the session of `rest` to MCP."""
    response = await rest.post("/seed_session", json=body)
    headers: dict[str, str] = response.json()[NEMO_GYM_MCP_METADATA_KEY]["headers"]
    return headers


async def rpc(app: FastAPI, headers: Mapping[str, str], method: str, **params: Any) -> dict[str, Any]:
    """One MCP request, from a client that shares nothing but the token with the REST caller."""
    async with caller(app) as client:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return (await client.post("/mcp", json=message, headers=headers)).json()  # type: ignore[no-any-return]


async def call(app: FastAPI, headers: Mapping[str, str], name: str, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = (await rpc(app, headers, "tools/call", name=name, arguments=arguments))["result"]
    return result


async def names(app: FastAPI, headers: Mapping[str, str]) -> list[str]:
    return [tool["name"] for tool in (await rpc(app, headers, "tools/list"))["result"]["tools"]]


def text(result: Mapping[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def test_without_the_flag_nothing_changes():
    app = exposed(expose_tools_over_mcp=False)
    async with caller(app) as rest:
        assert (await rest.post("/seed_session", json={})).json() == {}
        assert (await rest.post("/mcp", json={})).status_code == 404


async def test_seed_session_says_how_to_reach_the_tools():
    async with caller(exposed()) as rest:
        metadata = (await rest.post("/seed_session", json={})).json()["mcp"]
    token = metadata["headers"].pop(NEMO_GYM_MCP_SESSION_TOKEN_HEADER)
    assert token
    assert metadata == {"server_name": "weather", "url_path": "/mcp", "transport": "http", "headers": {}}


async def test_what_the_author_answers_to_seed_session_is_kept():
    class Answer(BaseSeedSessionResponse):
        greeting: str

    class Greeting(WeatherServer):
        async def seed_session(self, body: dict[str, Any]) -> Answer:
            return Answer(greeting=f"hello {body['user']}")

    async with caller(exposed(Greeting)) as rest:
        answered = (await rest.post("/seed_session", json={"user": "Ada"})).json()
    assert answered["greeting"] == "hello Ada"
    assert set(answered) == {"greeting", "mcp"}


async def test_a_seed_session_that_is_refused_gives_no_token():
    async with caller(exposed()) as rest:
        response = await rest.post("/seed_session", json=[1])
    assert response.status_code == 422
    assert "mcp" not in response.json()


async def test_a_tool_is_listed_with_the_schema_of_its_body():
    app = exposed()
    async with caller(app) as rest:
        tools = (await rpc(app, await seeded(rest), "tools/list"))["result"]["tools"]
    weather = next(tool for tool in tools if tool["name"] == "get_weather")
    assert weather["description"] == "The weather in a city."
    assert weather["inputSchema"]["properties"] == {"city": {"type": "string", "title": "City", "description": "Where"}}
    assert weather["inputSchema"]["required"] == ["city"]
    assert {tool["name"] for tool in tools} == {"get_weather", "fail", "refuse"}


async def test_a_tool_sees_the_same_session_over_mcp_and_over_rest():
    app = exposed()
    async with caller(app) as rest:
        headers = await seeded(rest)
        assert (await rest.post("/get_weather", json={"city": "Oslo"})).json()["asked"] == 1
        over_mcp = await call(app, headers, "get_weather", city="Oslo")
        assert over_mcp == {"content": [{"type": "text", "text": '{"city":"Oslo","asked":2}'}], "isError": False}
        assert (await rest.post("/get_weather", json={"city": "Oslo"})).json()["asked"] == 3


async def test_two_sessions_do_not_mix():
    app = exposed()
    async with caller(app) as one, caller(app) as other:
        first, second = await seeded(one), await seeded(other)
    await call(app, first, "get_weather", city="Oslo")
    assert '"asked":2' in text(await call(app, first, "get_weather", city="Oslo"))
    assert '"asked":1' in text(await call(app, second, "get_weather", city="Oslo"))


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("get_weather", {}, "Field required"),
        ("fail", {}, "the station is closed"),
        ("refuse", {}, "no such station"),
    ],
)
async def test_a_tool_that_fails_gives_the_model_an_error_to_read(tool: str, arguments: dict[str, Any], said: str):
    app = exposed()
    async with caller(app) as rest:
        result = await call(app, await seeded(rest), tool, **arguments)
    assert result["isError"] is True
    assert said in text(result)


async def test_an_app_without_error_middleware_gives_the_model_an_error_too():
    server = build_server(WeatherServer, name="weather", expose_tools_over_mcp=True)
    app = server.setup_webserver()
    maybe_auto_expose(server, app)
    async with caller(app) as rest:
        result = await call(app, await seeded(rest), "fail")
    assert result == {
        "content": [{"type": "text", "text": "ValueError('the station is closed')"}],
        "isError": True,
    }


async def test_exposing_twice_is_exposing_once():
    server = build_server(WeatherServer, name="weather", expose_tools_over_mcp=True)
    app = server.setup_webserver()
    maybe_auto_expose(server, app)
    before = len(app.routes), len(app.user_middleware)
    again = maybe_auto_expose(server, app)
    assert (len(app.routes), len(app.user_middleware)) == before
    assert again is not None
    assert list(again) == ["get_weather", "fail", "refuse"]


def test_exposure_returns_its_tools_by_name_and_none_where_it_is_off():
    server = build_server(WeatherServer, name="weather", expose_tools_over_mcp=False)
    app = server.setup_webserver()
    assert maybe_auto_expose(server, app) is None
    tools = install_auto_exposure(server, app)
    assert {name: tool.path for name, tool in tools.items()} == {
        "get_weather": "/get_weather",
        "fail": "/fail",
        "refuse": "/refuse",
    }
    assert "city" in tools["get_weather"].input_schema["properties"]


def test_a_single_route_is_bound_to_its_tool():
    app = build_server(WeatherServer, name="weather").setup_webserver()
    routes = {route.path: route for route in app.routes}
    assert bind_route(routes["/get_weather"]).description == "The weather in a city."
    with pytest.raises(ConfigError, match="'/verify' stands for 0 tools"):
        bind_route(routes["/verify"])


async def test_an_app_that_already_serves_cannot_be_exposed():
    server = build_server(WeatherServer, name="weather", expose_tools_over_mcp=True)
    app = server.setup_webserver()
    async with caller(app) as rest:
        await rest.post("/seed_session", json={})
    with pytest.raises(RuntimeError, match="before the app has served its first request"):
        maybe_auto_expose(server, app)


def test_a_server_without_tools_says_so_in_its_log(caplog: pytest.LogCaptureFixture):
    class Silent(WeatherServer):
        def mcp_tools(self, harvested: list[MCPTool], catchall: MCPCatchall | None = None) -> list[MCPTool]:
            return []

    exposed(Silent)
    assert "server 'weather' has `expose_tools_over_mcp`, but no tools" in caplog.text


@pytest.mark.parametrize("token", [None, "", "made-up", "eyJzaWQiOiJ4IiwidG9vbHMiOm51bGx9.AAAA"])
async def test_without_a_token_of_this_server_tools_are_listed_and_not_run(token: str | None):
    server = build_server(WeatherServer, name="weather", expose_tools_over_mcp=True)
    app = server.build_complete_app(server.server_client.global_config_dict)
    headers = {} if token is None else {NEMO_GYM_MCP_SESSION_TOKEN_HEADER: token}
    assert await names(app, headers) == ["get_weather", "fail", "refuse"]
    refused = await call(app, headers, "get_weather", city="Oslo")
    assert refused["isError"] is True
    assert NEMO_GYM_MCP_SESSION_TOKEN_HEADER in text(refused)
    assert not server._asked


async def test_without_a_token_nothing_of_a_session_is_shown():
    class Restricted(WeatherServer):
        def mcp_allowed_tools_for_session(self, seed_body: Mapping[str, Any]) -> list[str] | None:
            return ["fail"]

    app = exposed(Restricted)
    async with caller(app) as rest:
        headers = await seeded(rest, secret="the moon")
        before = await rpc(app, {}, "tools/list")
        await call(app, headers, "fail")
        assert await rpc(app, {}, "tools/list") == before
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_weather"}}
        with_cookie = await rest.post("/mcp", json=message)  # the cookie of a session is no token
    assert with_cookie.json()["result"]["isError"] is True
    assert headers[NEMO_GYM_MCP_SESSION_TOKEN_HEADER] not in with_cookie.text


async def test_a_token_of_another_server_is_refused():
    app = exposed()
    other = build_server(WeatherServer, name="other", expose_tools_over_mcp=True)
    async with caller(other.build_complete_app(other.server_client.global_config_dict)) as rest:
        headers = await seeded(rest)
    assert "not one of this server's" in text(await call(app, headers, "get_weather", city="Oslo"))


async def test_a_session_sees_and_calls_only_the_tools_it_was_allowed():
    class Restricted(WeatherServer):
        def mcp_allowed_tools_for_session(self, seed_body: Mapping[str, Any]) -> list[str] | None:
            return seed_body.get("tools")

    app = exposed(Restricted)
    async with caller(app) as rest:
        some, every, none = await seeded(rest, tools=["fail"]), await seeded(rest), await seeded(rest, tools=[])
    assert await names(app, some) == ["fail"]
    assert len(await names(app, every)) == 3
    assert await names(app, none) == []
    refused = await call(app, some, "get_weather", city="Oslo")
    assert refused["isError"] is True
    assert text(refused) == "Unknown tool 'get_weather'; tools of this session: 'fail'"


async def test_a_server_can_adapt_its_tools():
    class Fewer(WeatherServer):
        def mcp_tools(self, harvested: list[MCPTool], catchall: MCPCatchall | None = None) -> list[MCPTool]:
            assert catchall is None
            return [tool for tool in harvested if tool.name == "get_weather"]

    app = exposed(Fewer)
    async with caller(app) as rest:
        assert await names(app, await seeded(rest)) == ["get_weather"]


async def test_a_catch_all_route_runs_the_tools_that_its_author_names():
    class Office(WeatherServer):
        def setup_webserver(self) -> FastAPI:
            app = super().setup_webserver()
            app.post("/{path}")(self.any_tool)
            return app

        async def any_tool(self, path: str, request: Request) -> dict[str, Any]:
            return {"ran": path, "with": await request.json()}

        def mcp_tools(self, harvested: list[MCPTool], catchall: MCPCatchall | None = None) -> list[MCPTool]:
            assert catchall is not None
            schema = {"type": "object", "properties": {"to": {"type": "string"}}}
            return [catchall.tool("send_email", "Send an email.", schema)]

    app = exposed(Office)
    async with caller(app) as rest:
        headers = await seeded(rest)
        assert await names(app, headers) == ["send_email"]
        assert text(await call(app, headers, "send_email", to="Ada")) == '{"ran":"send_email","with":{"to":"Ada"}}'


async def test_tools_of_an_included_router_are_offered():
    class Routed(WeatherServer):
        def setup_webserver(self) -> FastAPI:
            app = super().setup_webserver()
            router = APIRouter(prefix="/station")
            router.post("/wind")(self.get_weather)
            app.include_router(router)
            return app

    app = exposed(Routed)
    async with caller(app) as rest:
        headers = await seeded(rest)
        assert "station_wind" in await names(app, headers)
        assert '"asked":1' in text(await call(app, headers, "station_wind", city="Oslo"))


def test_a_tool_with_a_reserved_name_stops_the_server_from_starting():
    class Reserved(WeatherServer):
        def setup_webserver(self) -> FastAPI:
            app = super().setup_webserver()
            app.post("/mcp")(self.get_weather)
            return app

    with pytest.raises(ConfigError, match=r"server 'weather': POST '/mcp' .* the tool name 'mcp' is reserved"):
        exposed(Reserved)


def test_two_routes_with_one_tool_name_stop_the_server_from_starting():
    class Twice(WeatherServer):
        def setup_webserver(self) -> FastAPI:
            app = super().setup_webserver()
            app.post("/get/weather")(self.get_weather)
            return app

    with pytest.raises(ConfigError, match=r"tool 'get_weather': POST '/get_weather' and POST '/get/weather'"):
        exposed(Twice)


async def test_verify_sees_plain_tool_names_and_answers_with_those_that_the_model_wrote():
    row = {"responses_create_params": asked("weather?").model_dump(exclude_unset=True)}
    called = {**row, "response": reply(tool_call("mcp__weather__get_weather")).model_dump(mode="json")}
    elsewhere = {**row, "response": reply(tool_call("mcp__other__get_weather")).model_dump(mode="json")}
    async with caller(exposed()) as rest:
        verified = (await rest.post("/verify", json=copy.deepcopy(called))).json()
        assert verified["reward"] == 1.0
        assert verified["response"]["output"][0]["name"] == "mcp__weather__get_weather"
        assert (await rest.post("/verify", json=elsewhere)).json()["reward"] == 0.0
    async with caller(exposed(expose_tools_over_mcp=False)) as rest:
        assert (await rest.post("/verify", json=called)).json()["reward"] == 0.0


async def test_a_call_under_a_rollout_prefix_reaches_the_tools():
    app = exposed()
    async with caller(app) as rest:
        seed = await rest.post("/ng-rollout/0-0/seed_session", json={})
        headers = seed.json()["mcp"]["headers"]
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        response = await rest.post("/ng-rollout/0-0/mcp", json=message, headers=headers)
    assert len(response.json()["result"]["tools"]) == 3
