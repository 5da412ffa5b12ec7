# SPDX-License-Identifier: Apache-2.0
"""What the SDKs raise when a model's endpoint refuses or a request does not fit, plain and streamed."""

from collections.abc import AsyncIterator

import aiohttp
import anthropic
import openai
import pytest

from nemo_gym._transport.call_errors import ServerUnreachable
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI
from nemo_gym.server_utils import request
from tests.clients.endpoint import KEY
from tests.clients.served import BACKENDS, Served, serve_model

STATUSES = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError", 429: "RateLimitError"}
PATHS = ("responses", "chat/completions", "messages")


@pytest.fixture(params=BACKENDS)
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    async with serve_model(request.param) as served:
        yield served


def ask(path: str, text: str, **more: object) -> dict[str, object]:
    turns = [{"role": "user", "content": text}]
    given = {"input": text} if path == "responses" else {"messages": turns, "max_tokens": 9}
    return {"model": "any", **given, **more}


async def post(url: str, path: str, body: object, **headers: str) -> tuple[int, dict[str, str], object]:
    kwargs = {"data": body} if isinstance(body, bytes) else {"json": body}
    async with aiohttp.ClientSession() as session:
        async with session.post(
            f"{url}/v1/{path}", headers={"content-type": "application/json", **headers}, **kwargs
        ) as r:
            return r.status, dict(r.headers), await r.json()


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sdk_of_openai_raises_what_the_endpoint_answered(served: Served, stream: bool) -> None:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0) as client:
        for status, name in {**STATUSES, 503: "InternalServerError"}.items():
            text = f"fail {status}"
            with pytest.raises(getattr(openai, name)) as refused:
                await client.responses.create(model="any", input=text, stream=stream)
            assert refused.value.status_code == status
            turns = [{"role": "user", "content": text}]
            with pytest.raises(getattr(openai, name)) as refused:
                await client.chat.completions.create(model="any", messages=turns, stream=stream)
            assert refused.value.status_code == status
            assert KEY not in str(refused.value.body)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sdk_of_anthropic_raises_what_the_endpoint_answered(served: Served, stream: bool) -> None:
    async with anthropic.AsyncAnthropic(base_url=served.url, api_key="x", max_retries=0) as client:
        for status, name in {**STATUSES, 503: "InternalServerError"}.items():
            turns = [{"role": "user", "content": f"fail {status}"}]
            with pytest.raises(getattr(anthropic, name)) as refused:
                await client.messages.create(model="any", max_tokens=9, messages=turns, stream=stream)
            assert refused.value.status_code == status
            assert refused.value.body["type"] == "error"


@pytest.mark.parametrize("path", PATHS)
async def test_what_the_endpoint_says_of_its_refusal_is_kept(served: Served, path: str) -> None:
    status, headers, body = await post(served.url, path, ask(path, "fail 429"))
    assert (status, headers["Retry-After"]) == (429, "0.1")
    assert body["error"]["message"] == "slow down"
    status, _, body = await post(served.url, path, ask(path, "fail 400"))
    if path == "messages":
        told = body["error"]["type"], body["error"]["message"]
        assert told == ("invalid_request_error", "prompt is too long: This model's maximum context length is 8 tokens")
    else:
        assert (body["error"]["code"], body["error"]["param"]) == ("context_length_exceeded", "messages")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", [b"{not json", {"model": "m"}, {"input": 3, "messages": 3}])
async def test_a_body_that_does_not_fit_is_a_400_in_the_shape_of_the_api(path: str, body: object) -> None:
    async with serve_model("chat") as served:
        status, _, told = await post(served.url, path, body)
    assert status == 400
    assert told["error"]["type"] == "invalid_request_error"
    assert told["error"]["message"]
    assert ("type" in told) == (path == "messages")


@pytest.mark.parametrize("path", PATHS)
async def test_an_endpoint_that_breaks_off_is_a_502(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def break_off(self: object, method: str, url: str, **kwargs: object) -> None:
        raise ServerUnreachable(method, url, "connection refused")

    monkeypatch.setattr(NeMoGymAsyncOpenAI, "_call", break_off)
    async with serve_model("chat") as served:
        status, _, body = await post(served.url, path, ask(path, "hi"))
    assert (status, body["error"]["type"]) == (502, "api_error" if path == "messages" else "server_error")


async def test_our_own_client_sees_failures_as_before() -> None:
    async with serve_model("chat") as served:
        answer = await request("POST", f"{served.url}/v1/responses", json=ask("responses", "fail 401"))
        assert answer.status == 500
        assert "calling an inner server" in await answer.json()
        malformed = await request("POST", f"{served.url}/v1/responses", json={"model": "m"})
        assert malformed.status == 422


async def test_a_rollout_that_outgrows_the_context_ends_and_does_not_fail() -> None:
    async with serve_model("chat") as served:
        status, _, body = await post(f"{served.url}/ng-rollout/7-0", "responses", ask("responses", "fail 400"))
    assert (status, body["incomplete_details"]) == (200, {"reason": "max_output_tokens"})
