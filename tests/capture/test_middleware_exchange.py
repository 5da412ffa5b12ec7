# SPDX-License-Identifier: Apache-2.0
"""What is kept of one exchange with a model: how it failed, what was said, and nothing of its headers."""

from typing import Any

import orjson
import pytest

from nemo_gym._capture.middleware import CapturedExchange

COMPLETED = b'data: {"type": "response.completed", "response": {"id": "r"}}\n\n'
INCOMPLETE = b'data: {"type": "response.incomplete", "response": {"id": "r"}}\n\n'
FAILED = b'data: {"type": "response.failed", "response": {"id": "r"}}\n\n'
CREATED = b'data: {"type": "response.created", "response": {"id": "r"}}\n\n'


def kept(status: int | None, body: bytes, *, stream: bool = False, request: bytes = b"{}") -> dict[str, Any]:
    exchange = CapturedExchange("0-0", "responses", False)
    exchange.note_received({"type": "http.request", "body": request})
    if status is not None:
        kind = b"text/event-stream; charset=utf-8" if stream else b"application/json"
        exchange.note_sent(
            {"type": "http.response.start", "status": status, "headers": [(b"Content-Type", kind), (b"x-key", b"sk-1")]}
        )
        assert exchange.note_sent({"type": "http.response.body", "body": body})
    exchange.end()
    return exchange.fields({"type": "responses_api_models", "name": "m"})


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (200, None),
        (400, "client_error"),
        (401, "auth"),
        (403, "auth"),
        (404, "not_found"),
        (408, "timeout"),
        (422, "client_error"),
        (429, "rate_limit"),
        (500, "upstream_error"),
        (503, "upstream_error"),
        (504, "timeout"),
        (None, "no_response"),
    ],
)
def test_a_status_has_a_category(status: int | None, category: str | None):
    assert kept(status, b"{}")["error_category"] == category


@pytest.mark.parametrize(
    ("body", "category"),
    [
        (CREATED + COMPLETED, None),
        (CREATED + INCOMPLETE, "incomplete"),
        (CREATED + FAILED, "upstream_error"),
        (CREATED, "stream_truncated"),
        (b"", "stream_truncated"),
    ],
)
def test_a_stream_has_a_category_although_its_status_is_200(body: bytes, category: str | None):
    one = kept(200, body, stream=True)
    assert one["error_category"] == category
    assert one["response"] == ({"id": "r"} if body else None)
    assert one.get("response_raw", "") == body.decode()


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'"text"', b"\xff"])
def test_a_success_that_is_no_object_is_a_parse_error_with_its_text(body: bytes):
    one = kept(200, body)
    assert (one["response"], one["error_category"]) == (None, "capture_parse_error")
    assert one["response_raw"] == body.decode(errors="replace")


def test_a_request_that_is_no_object_is_kept_as_its_text():
    assert kept(422, b"{}", request=b"[1]")["request_raw"] == "[1]"
    assert "request_raw" not in kept(200, b"{}", request=b"")


def test_nothing_of_the_headers_is_kept():
    assert b"sk-1" not in orjson.dumps(kept(200, b"{}"))


def test_an_exchange_has_these_fields():
    assert list(kept(200, b"{}")) == [
        "model_call_id",
        "dialect",
        "model_ref",
        "started_at",
        "completed_at",
        "latency_ms",
        "latency_ttft_ms",
        "status_code",
        "error_category",
        "request",
        "response",
    ]
