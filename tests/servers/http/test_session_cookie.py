# SPDX-License-Identifier: Apache-2.0
from fastapi import FastAPI, Request
from starlette.middleware.sessions import SessionMiddleware
from starlette.testclient import TestClient

from nemo_gym._servers.http.session_cookie import SessionCookieMiddleware


def app_with(middleware, **options) -> FastAPI:
    app = FastAPI()

    @app.post("/count")
    async def count(request: Request) -> dict:
        request.session["count"] = request.session.get("count", 0) + 1
        return dict(request.session)

    @app.get("/look")
    async def look(request: Request) -> dict:
        return dict(request.session)

    app.add_middleware(middleware, **options)
    return app


def ours(secret: str = "s") -> TestClient:
    return TestClient(app_with(SessionCookieMiddleware, cookie_name="gym", secret=secret, id_key="session_id"))


def test_every_reply_carries_the_cookie():
    client = ours()
    first, second = client.get("/look"), client.get("/look")
    assert "gym=" in first.headers["set-cookie"]
    assert "gym=" in second.headers["set-cookie"]
    assert {"httponly", "samesite=lax", "path=/", "max-age=1209600"} <= {
        part.strip().lower() for part in first.headers["set-cookie"].split(";")
    }


def test_a_session_keeps_its_id_and_its_values():
    client = ours()
    first, second = client.post("/count").json(), client.post("/count").json()
    assert first["session_id"] == second["session_id"]
    assert [first["count"], second["count"]] == [1, 2]


def test_without_the_cookie_a_new_session_begins():
    assert ours().get("/look").json()["session_id"] != ours().get("/look").json()["session_id"]


def test_an_unchanged_session_gets_its_own_cookie_back():
    client = ours()
    assert client.get("/look").cookies["gym"] == client.get("/look").cookies["gym"]


def test_a_forged_cookie_begins_a_new_session():
    client = ours()
    client.cookies.set("gym", "eyJzZXNzaW9uX2lkIjoiZXZpbCJ9.abc.def")
    assert client.get("/look").json()["session_id"] != "evil"


def test_a_cookie_of_another_server_is_not_taken():
    stranger = ours(secret="other")
    cookie = stranger.get("/look").cookies["gym"]
    client = ours()
    client.cookies.set("gym", cookie)
    assert client.get("/look").json()["session_id"] != stranger.get("/look").json()["session_id"]


def test_cookies_are_understood_by_starlettes_middleware_and_the_other_way_round():
    starlettes = TestClient(app_with(SessionMiddleware, secret_key="s", session_cookie="gym"))
    client = ours()
    starlettes.cookies.set("gym", client.post("/count").cookies["gym"])
    theirs = starlettes.post("/count")
    assert theirs.json()["count"] == 2
    back = ours()
    back.cookies.set("gym", theirs.cookies["gym"])
    assert back.get("/look").json()["count"] == 2


def test_what_one_request_does_to_its_session_does_not_leak_into_the_next_with_the_same_cookie():
    client = ours()
    cookie = client.post("/count").cookies["gym"]
    for _ in range(2):
        again = ours()
        again.cookies.set("gym", cookie)
        assert again.post("/count").json()["count"] == 2
