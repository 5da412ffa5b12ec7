# SPDX-License-Identifier: Apache-2.0
"""Running a tool by calling its route in process."""

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from starlette.middleware.sessions import SessionMiddleware

from nemo_gym._mcp.session import ToolRunner
from nemo_gym._mcp.types import MCPTool
from nemo_gym._serving.session import SessionCookie, SessionCookieMiddleware

COOKIE = SessionCookie("gym", "secret")


def app_with(middleware: Any, **options: Any) -> FastAPI:
    app = FastAPI()
    app.add_middleware(middleware, **options)

    @app.post("/whoami")
    async def whoami(request: Request) -> str:
        return str(request.session.get("session_id"))

    @app.post("/status/{code}")
    async def status(code: int) -> Response:
        return Response(status_code=code)

    @app.post("/hang")
    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    return app


def gym_app() -> FastAPI:
    return app_with(SessionCookieMiddleware, cookie_name="gym", secret="secret", id_key="session_id")


def runner(app: FastAPI, timeout_s: float = 10) -> ToolRunner:
    return ToolRunner(app, ("127.0.0.1", 1), COOKIE, timeout_s)


@pytest.mark.parametrize(
    "app",
    [gym_app(), app_with(SessionMiddleware, session_cookie="gym", secret_key="secret")],
    ids=["ours", "starlette"],
)
async def test_the_route_sees_the_session_of_the_caller(app: FastAPI):
    result = await runner(app).run("session é", MCPTool("whoami", "/whoami"), {})
    assert (result.text, result.is_error) == ('"session é"', False)


@pytest.mark.parametrize(
    ("code", "text", "is_error"),
    [(204, "", False), (304, "HTTP 304 Not Modified", True), (503, "HTTP 503 Service Unavailable", True)],
)
async def test_a_status_other_than_success_is_an_error_with_a_text(code: int, text: str, is_error: bool):
    result = await runner(gym_app()).run("s", MCPTool("status", f"/status/{code}"), {})
    assert (result.text, result.is_error) == (text, is_error)


async def test_a_tool_that_never_answers_ends_at_its_deadline():
    result = await runner(gym_app(), timeout_s=0.01).run("s", MCPTool("hang", "/hang"), {})
    assert result.is_error
    assert "0.01" in result.text
