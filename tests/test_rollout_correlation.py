# SPDX-License-Identifier: Apache-2.0
"""How a rollout id is found, carried in a URL, and carried in the running context."""

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym._util.rollout_paths import apply_rollout_prefix, rollout_path_prefix, split_rollout_prefix
from nemo_gym.rollout_correlation import (
    RolloutContextMiddleware,
    current_rollout_id,
    maybe_rollout_id_from_run_body,
    rollout_context,
)

rollout_ids = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,20}\Z")
rests = st.from_regex(r"\A(/[a-z0-9_]{1,8}){1,4}\Z")


@pytest.mark.parametrize(
    ("body", "rollout_id"),
    [
        ({"_ng_task_index": 3, "_ng_rollout_index": 0}, "3-0"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 0}, "3-1"),
        ({"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_attempt_index": 2}, "3-1-a2"),
        ({"_ng_rollout_id": "step7.x_1"}, "step7.x_1"),
        ({"_ng_rollout_id": "mine", "_ng_task_index": 3, "_ng_rollout_index": 1}, "mine"),
        ({"_ng_rollout_id": "mine", "_ng_attempt_index": 1}, "mine-a1"),
        ({"_ng_task_index": 3}, None),
        ({}, None),
    ],
)
def test_the_rollout_id_comes_from_the_id_or_the_indices_of_the_body(body: dict[str, Any], rollout_id: str | None):
    assert maybe_rollout_id_from_run_body(body) == rollout_id


@pytest.mark.parametrize("bad", ["", ".hidden", "a/b", "../x", "a b", "a\n", 7])
def test_an_id_that_cannot_be_a_path_segment_is_refused_by_name(bad: object):
    with pytest.raises(ValueError, match="rollout id") as caught:
        maybe_rollout_id_from_run_body({"_ng_rollout_id": bad})
    assert repr(bad) in str(caught.value)


def test_indices_are_found_in_the_extra_fields_of_a_run_request():
    class Request(BaseModel):
        model_config = ConfigDict(extra="allow")

    assert (
        maybe_rollout_id_from_run_body(Request.model_validate({"_ng_task_index": 1, "_ng_rollout_index": 2})) == "1-2"
    )


def test_indices_are_found_in_declared_fields_through_their_alias():
    class Request(BaseModel):
        task: int = Field(alias="_ng_task_index")
        rollout: int = Field(alias="_ng_rollout_index")

    assert (
        maybe_rollout_id_from_run_body(Request.model_validate({"_ng_task_index": 1, "_ng_rollout_index": 2})) == "1-2"
    )


def test_a_request_that_drops_unknown_fields_has_no_rollout_id():
    class Request(BaseModel):
        x: int = 0

    assert maybe_rollout_id_from_run_body(Request.model_validate({"_ng_task_index": 1, "_ng_rollout_index": 2})) is None


@settings(max_examples=30, deadline=None)
@given(rollout_id=rollout_ids, token_capture=st.booleans(), rest=rests)
def test_a_prefixed_path_splits_into_what_it_was_made_of(rollout_id: str, token_capture: bool, rest: str):
    prefixed = rollout_path_prefix(rollout_id, token_capture=token_capture) + rest
    assert split_rollout_prefix(prefixed) == (rollout_id, token_capture, rest)


@settings(max_examples=30, deadline=None)
@given(path=st.text(max_size=40))
def test_a_path_without_the_prefix_is_returned_as_it_was(path: str):
    assert split_rollout_prefix("/v1" + path) == (None, False, "/v1" + path)


@pytest.mark.parametrize(
    "path", ["/ng-rollout", "/ng-rollout/", "/ng-rollout//x", "/ng-rollout/../v1", "/ng-rollouts/a/b"]
)
def test_a_malformed_prefix_is_no_prefix(path: str):
    assert split_rollout_prefix(path) == (None, False, path)


def test_a_segment_that_only_starts_like_token_capture_belongs_to_the_path():
    assert split_rollout_prefix("/ng-rollout/a/training-token-captures/x") == (
        "a",
        False,
        "/training-token-captures/x",
    )


def test_of_two_prefixes_the_outer_names_the_rollout_and_both_are_stripped():
    assert split_rollout_prefix("/ng-rollout/a/ng-rollout/b/training-token-capture/v1/x") == ("a", True, "/v1/x")


@pytest.mark.parametrize(
    ("base_url", "prefixed"),
    [
        ("http://h:1", "http://h:1/ng-rollout/7-0"),
        ("http://h:1/", "http://h:1/ng-rollout/7-0"),
        ("http://h:1/v1", "http://h:1/ng-rollout/7-0/v1"),
        ("http://h:1/ng-rollout/6-0/v1", "http://h:1/ng-rollout/7-0/v1"),
    ],
)
def test_a_base_url_gets_the_prefix_in_front_of_its_path(base_url: str, prefixed: str):
    assert apply_rollout_prefix(base_url, "7-0") == prefixed


def test_without_a_rollout_id_urls_stay_as_they_are():
    assert apply_rollout_prefix("http://h:1/v1/", None) == "http://h:1/v1/"
    assert rollout_path_prefix(None) == ""


async def test_the_context_reaches_tasks_started_inside_and_ends_with_the_block():
    async def look() -> str | None:
        await asyncio.sleep(0)
        return current_rollout_id()

    with rollout_context("1-0"):
        inner = asyncio.create_task(look())
        with rollout_context("2-0"):
            assert current_rollout_id() == "2-0"
        assert current_rollout_id() == "1-0"
    assert await inner == "1-0"
    assert current_rollout_id() is None


def app_with_middleware() -> FastAPI:
    app = FastAPI()
    app.add_middleware(RolloutContextMiddleware)

    @app.post("/where/{name}")
    async def where(name: str, request: Request) -> dict[str, Any]:
        return {"name": name, "rollout": current_rollout_id(), "path": request.url.path, "query": request.url.query}

    @app.post("/sync")
    def sync() -> str | None:
        return current_rollout_id()

    return app


async def post(path: str) -> Any:
    transport = httpx.ASGITransport(app=app_with_middleware())
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        return (await client.post(path)).json()


async def test_the_middleware_strips_the_prefix_and_sets_the_context():
    plain = await post("/where/a%20b?q=1")
    assert (plain["name"], plain["query"]) == ("a b", "q=1")
    assert await post("/ng-rollout/4-1/where/a%20b?q=1") == {**plain, "rollout": "4-1"}
    assert await post("/ng-rollout/4-1/training-token-capture/sync") == "4-1"


async def test_a_request_without_prefix_has_no_rollout():
    assert (await post("/where/x"))["rollout"] is None
    assert current_rollout_id() is None


async def test_the_scope_of_the_caller_is_not_changed():
    seen: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    scope = {"type": "http", "path": "/ng-rollout/a/x", "raw_path": b"/ng-rollout/a/x"}
    await RolloutContextMiddleware(app)(scope, None, None)
    assert scope == {"type": "http", "path": "/ng-rollout/a/x", "raw_path": b"/ng-rollout/a/x"}
    assert (seen[0]["path"], seen[0]["raw_path"]) == ("/x", b"/x")


async def test_lifespan_events_pass_through():
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    await RolloutContextMiddleware(app)({"type": "lifespan"}, None, None)
    assert seen == ["lifespan"]
