# SPDX-License-Identifier: Apache-2.0
"""Session tokens are whole or worth nothing, and a tool runs in the session of its caller."""

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from hypothesis import given, settings, strategies as st
from itsdangerous import URLSafeSerializer
from starlette.middleware.sessions import SessionMiddleware

from nemo_gym._servers.http.session_cookie import SessionCookie, SessionCookieMiddleware
from nemo_gym._servers.mcp.protocol import MCPTool
from nemo_gym._servers.mcp.session import Grant, GrantSigner, ToolRunner

SIGNER = GrantSigner("secret")
grants = st.builds(Grant, st.text(), st.none() | st.frozensets(st.text()))


@settings(max_examples=30, deadline=None)
@given(grants)
def test_a_token_gives_back_its_grant(grant: Grant):
    assert SIGNER.read(SIGNER.sign(grant)) == grant


@settings(max_examples=30, deadline=None)
@given(grants)
def test_a_token_fits_into_a_header(grant: Grant):
    token = SIGNER.sign(grant)
    assert token.isascii()
    assert token.isprintable()
    assert " " not in token


@pytest.mark.parametrize("grant", [Grant("s", None), Grant("s", frozenset({"a"}))])
def test_a_token_of_another_secret_is_worth_nothing(grant: Grant):
    assert SIGNER.read(GrantSigner("other").sign(grant)) is None


def test_what_was_signed_for_another_purpose_is_worth_nothing():
    assert SIGNER.read(str(URLSafeSerializer("secret").dumps({"sid": "s", "tools": None}))) is None


@pytest.mark.parametrize("token", ["", ".", "a.b", "é", "\x00"])
def test_noise_is_worth_nothing(token: str):
    assert SIGNER.read(token) is None


def test_no_list_of_tools_allows_all_and_an_empty_one_none():
    assert Grant("s", None).allows("anything")
    assert not Grant("s", frozenset()).allows("anything")
    assert Grant("s", frozenset({"a"})).allows("a")


# --- running a tool ---------------------------------------------------------------------------------------------------


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
