# SPDX-License-Identifier: Apache-2.0
import logging

import aiohttp
import pytest
from fastapi import FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, field_validator
from starlette.testclient import TestClient

from nemo_gym._servers.direct_calls.route import GymRoute
from nemo_gym._servers.http import guard
from nemo_gym._servers.http.guard import BodyLimit, ErrorsAsJson, make_validation_handler
from nemo_gym._transport.call_errors import ServerResponseError, build_request_info
from nemo_gym._transport.failures import HEADER, decode_failure
from nemo_gym._util.message_throttle import MessageThrottle


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value


@pytest.fixture
def client():
    app = FastAPI()
    app.router.route_class = GymRoute

    @app.post("/raise/{kind}")
    async def fail(kind: str) -> None:
        if kind == "invalid":
            Even.model_validate({"number": "three"})
        raise {
            "value": ValueError("no such city"),
            "http": HTTPException(404, "gone"),
            "inner": ServerResponseError("POST", "http://judge/verify", 503, "Busy", b'{"why":"overloaded"}'),
            "bare": aiohttp.ClientResponseError(build_request_info("GET", "http://x/y"), (), status=502, message="Bad"),
        }[kind]

    @app.post("/even")
    async def even(body: Even) -> int:
        return body.number

    app.add_exception_handler(RequestValidationError, make_validation_handler(logging.getLogger("test").warning))
    app.add_middleware(BodyLimit, limit_bytes=1000)
    app.add_middleware(ErrorsAsJson, server_name="weather")
    return TestClient(app)


def test_an_exception_is_a_500_whose_body_is_its_repr_as_a_json_string(client):
    reply = client.post("/raise/value")
    assert (reply.status_code, reply.json()) == (500, "ValueError('no such city')")


def test_http_exceptions_keep_their_status_and_detail(client):
    reply = client.post("/raise/http")
    assert (reply.status_code, reply.json()) == (404, {"detail": "gone"})


def test_the_failure_of_another_server_carries_its_body_and_the_header_its_url_and_status(client):
    reply = client.post("/raise/inner")
    assert reply.json() == ("""Hit an exception in Server___weather calling an inner server: b'{"why":"overloaded"}'""")
    failure = decode_failure(reply.headers[HEADER])
    assert "http://judge/verify" in failure.message
    assert "503" in failure.message


def test_calls_that_fail_alike_are_logged_once(client, caplog, monkeypatch):
    monkeypatch.setattr(guard, "_FAILED_CALLS", MessageThrottle(every_s=1e9))
    for _ in range(50):
        client.post("/raise/inner")
    assert [
        record.getMessage().count("answered 503") for record in caplog.records if record.name == guard.__name__
    ] == [1]


def test_an_aiohttp_error_without_a_body_is_reported_too(client):
    reply = client.post("/raise/bare")
    assert reply.status_code == 500
    assert reply.json().startswith("Hit an exception in Server___weather calling an inner server: b'")
    assert "http://x/y" in decode_failure(reply.headers[HEADER]).message


def test_a_pydantic_error_is_its_bare_text(client):
    reply = client.post("/raise/invalid")
    assert reply.status_code == 500
    assert reply.json().startswith("1 validation error for Even\nnumber")


def test_a_validators_value_error_stays_a_422(client):
    reply = client.post("/even", json={"number": 3})
    assert reply.status_code == 422
    assert reply.json()["detail"][0]["ctx"] == {"error": "odd"}


def test_the_log_names_the_fields_of_a_bad_body_but_not_its_content(client, caplog):
    client.post("/even", json={"number": "sk-secret-value"})
    assert "body.number" in caplog.text
    assert "sk-secret-value" not in caplog.text


def test_a_body_over_the_limit_is_refused_before_it_is_read(client):
    reply = client.post("/even", content=b"x" * 1001, headers={"content-type": "application/json"})
    assert reply.status_code == 413
    assert "1000" in reply.json()["detail"]
    assert "max_request_body_bytes" in reply.json()["detail"]


def test_a_chunked_body_over_the_limit_is_refused(client):
    chunks = (b"y" * 300 for _ in range(10))
    assert client.post("/even", content=chunks, headers={"content-type": "application/json"}).status_code == 413
