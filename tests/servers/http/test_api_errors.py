# SPDX-License-Identifier: Apache-2.0
"""Errors in the shape of OpenAI's and Anthropic's APIs."""

import json
import pickle

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from nemo_gym._servers.direct_calls.route import parse_json
from nemo_gym._servers.http.admission import AccessRules, Admission
from nemo_gym._servers.http.api_errors import ApiError, read_error
from nemo_gym._servers.http.guard import ErrorsAsJson
from nemo_gym._transport.call_errors import ServerDeadlineExceeded, ServerResponseError, ServerUnreachable
from nemo_gym._transport.callers import OWN_CALL_HEADER
from nemo_gym._transport.failures import Failure
from nemo_gym._util.known_secrets import KNOWN_SECRETS
from nemo_gym._wire.schema.format_errors import InvalidModelReply

URL = "http://endpoint/v1/chat/completions"


def refused(status: int, body: object = None, **fields: str) -> ServerResponseError:
    return ServerResponseError("POST", URL, status, "", json.dumps(body).encode(), **fields)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (refused(422), 422),
        (refused(503), 503),
        (ServerUnreachable("POST", URL, "refused"), 502),
        (ServerDeadlineExceeded("POST", URL, 1.0), 504),
        (InvalidModelReply("no choices"), 502),
        (NotImplementedError("no such tool"), 400),
        (ValueError("a bug"), 500),
    ],
)
def test_an_error_has_the_status_of_its_cause(error, status):
    assert read_error(error, "text").status == status


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ({"error": {"message": "no", "code": "invalid_api_key"}}, "no", "invalid_api_key"),
        ({"object": "error", "message": "no", "code": 400}, "no", None),
        ({"error": "no"}, "no", None),
        ({"detail": "no"}, "no", None),
        ({"detail": [{"msg": "no"}]}, 'the model\'s endpoint answered 401: {"detail": [{"msg": "no"}]}', None),
        ("<html>", 'the model\'s endpoint answered 401: "<html>"', None),
    ],
)
def test_what_an_endpoint_says_is_found_in_every_shape(body, message, code):
    told = read_error(refused(401, body), "text")
    assert (told.message, told.code) == (message, code)


def test_an_agent_passes_on_the_status_that_its_model_server_was_given():
    failure = Failure("model_endpoint", URL, True, "slow down", "429").encode()
    told = read_error(refused(500, "text", failure=failure), "text")
    assert (told.status, told.message) == (429, "slow down")


def test_retry_after_survives_another_process():
    error = pickle.loads(pickle.dumps(refused(429, retry_after="7")))
    assert read_error(error, "text").retry_after == "7"


def test_secrets_are_masked():
    KNOWN_SECRETS.add({"sk-very-secret-indeed"})
    assert b"sk-very-secret-indeed" not in ApiError(401, "wrong key sk-very-secret-indeed").encode("openai")


def test_only_outside_programs_on_the_paths_of_an_api_get_its_errors():
    app = FastAPI()

    @app.post("/v1/responses")
    @app.post("/get_weather")
    async def fail() -> None:
        raise ValueError("boom")

    app.add_middleware(ErrorsAsJson, server_name="s")
    client = TestClient(app, raise_server_exceptions=False)
    assert client.post("/v1/responses").json()["error"]["type"] == "server_error"
    assert client.post("/ng-rollout/1-0/v1/responses").json() == {
        "error": {"message": "Not Found", "type": "invalid_request_error", "param": None, "code": None}
    }
    for path, headers in (("/get_weather", {}), ("/v1/responses", {OWN_CALL_HEADER: "1"})):
        answer = client.post(path, headers=headers)
        assert (answer.status_code, type(answer.json())) == (500, str)


def test_a_path_that_nobody_serves_is_told_of_as_the_apis_do():
    app = FastAPI()
    app.add_middleware(ErrorsAsJson, server_name="s")
    answer = TestClient(app).post("/v1/embeddings", json={"input": "hi"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "Not Found")
    answer = TestClient(app).post("/v1/files", headers={"anthropic-version": "2023-06-01"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")
    assert TestClient(app).post("/v2/embeddings").json() == {"detail": "Not Found"}


def test_a_body_that_is_no_json_is_told_of_with_the_place():
    app = FastAPI()

    @app.post("/v1/responses")
    async def read(request: Request) -> None:
        parse_json(await request.body())

    app.add_middleware(ErrorsAsJson, server_name="s")
    answer = TestClient(app).post("/v1/responses", content=b'{"model": }')
    told = answer.json()["error"]
    assert (answer.status_code, told["param"]) == (400, None)
    assert told["message"] == "the body is not JSON: Expecting value, at character 10"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_a_request_without_the_access_token_is_refused_in_the_shape_of_the_api(path):
    client = TestClient(Admission(FastAPI(), "127.0.0.1", AccessRules(token="t")), base_url="http://127.0.0.1")
    answer = client.post(path)
    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
    assert ("type" in answer.json()) == (path == "/v1/messages")
    assert "it carries no access token" in answer.json()["error"]["message"]
    assert list(client.post("/verify").json()) == ["detail"]
    assert list(client.post(path, headers={OWN_CALL_HEADER: "1"}).json()) == ["detail"]
