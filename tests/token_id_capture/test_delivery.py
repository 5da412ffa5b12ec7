# SPDX-License-Identifier: Apache-2.0
"""A call's tokens reach the sink, or the sink is told that they do not; the model call never fails for it."""

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from nemo_gym._training.capture.capture_middleware import RecordedAnswer
from nemo_gym.token_id_capture import (
    CaptureContext,
    TokenDelivery,
    TokenEntry,
    capture_tokens,
    commit_entry,
    current_capture_context,
    delivery,
    install_token_sink,
    installed_token_sink,
    register_call_intent,
    reset_token_sink,
    set_token_sink,
)

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
ANSWER = {"model": "small", "output": [{"type": "message", "id": "m", **TOKENS}]}


class RecordingSink:
    """A sink that notes its calls; those in `broken` raise, as often as they are told."""

    def __init__(self, **broken: int) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.broken = broken

    def note(self, name: str, *arguments: Any) -> None:
        if self.broken.get(name, 0) > 0:
            self.broken[name] -= 1
            raise ConnectionError(f"{name} is away")
        self.calls.append((name, *arguments))

    async def put(self, entry: TokenEntry) -> None:
        self.note("put", entry.rollout_id, entry.model_call_id, entry.generation_token_ids)

    async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None:
        self.note("mark_incomplete", rollout_id, model_call_id)

    async def close(self) -> None:
        self.note("close")


class AnnouncedSink(RecordingSink):
    async def begin_call(self, rollout_id: str, model_call_id: str) -> None:
        self.note("begin_call", rollout_id, model_call_id)


PUT = ("put", "1-0", "mc_1", [3])
MARK = ("mark_incomplete", "1-0", "mc_1")


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MARK_DELAYS_S", (0, 0, 0))


def context(sink: Any) -> CaptureContext:
    return CaptureContext(sink, "1-0", "mc_1")


def recorded(response: Any = None, failure: str | None = None) -> "Future[RecordedAnswer]":
    future: Future[RecordedAnswer] = Future()
    future.set_result(RecordedAnswer(response, failure))
    return future


async def test_the_context_of_a_call_is_there_until_it_is_reset():
    assert current_capture_context() is None
    sink = RecordingSink()
    token = set_token_sink(sink, "1-0", "mc_1")
    assert current_capture_context() == context(sink)
    assert await capture_tokens(ANSWER) is True
    reset_token_sink(token)
    assert current_capture_context() is None
    assert sink.calls == [PUT]


async def test_without_a_sink_nothing_is_captured_and_nothing_marked():
    assert await capture_tokens({"output": []}) is False
    assert await commit_entry(TokenEntry(rollout_id="1-0", model_call_id="mc_1", **TOKENS)) is False
    await register_call_intent()


@pytest.mark.parametrize(
    "answer", [{"output": []}, {"output": [{**TOKENS, "generation_log_probs": []}]}, "not JSON", None]
)
async def test_an_answer_without_usable_tokens_marks_the_rollout(answer: Any):
    sink = RecordingSink()
    assert await capture_tokens(answer, context(sink)) is False
    assert sink.calls == [MARK]


async def test_only_a_sink_that_wants_it_is_told_that_a_call_begins():
    plain, announced = RecordingSink(), AnnouncedSink()
    await register_call_intent(context(plain))
    await register_call_intent(context(announced))
    assert (plain.calls, announced.calls) == ([], [("begin_call", "1-0", "mc_1")])


async def test_a_sink_that_fails_to_put_marks_the_rollout(caplog: pytest.LogCaptureFixture):
    sink = RecordingSink(put=1)
    assert await capture_tokens(ANSWER, context(sink)) is False
    assert sink.calls == [MARK]
    assert "put is away" in caplog.text


async def test_a_sink_that_fails_to_begin_marks_the_rollout():
    sink = AnnouncedSink(begin_call=1)
    await register_call_intent(context(sink))
    assert sink.calls == [MARK]


async def test_a_mark_that_fails_is_tried_again():
    sink = RecordingSink(put=1, mark_incomplete=2)
    await capture_tokens(ANSWER, context(sink))
    assert sink.calls == [MARK]


async def test_a_sink_that_cannot_be_told_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture):
    sink = RecordingSink(put=1, mark_incomplete=99)
    assert await capture_tokens(ANSWER, context(sink)) is False
    assert sink.calls == []
    assert [record.levelname for record in caplog.records][-1] == "ERROR"
    assert "do not train on this rollout" in caplog.text


async def test_a_sink_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch):
    class Hanging(RecordingSink):
        async def put(self, entry: TokenEntry) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(delivery, "SINK_TIMEOUT_S", 0.01)
    sink = Hanging()
    assert await capture_tokens(ANSWER, context(sink)) is False
    assert sink.calls == [MARK]


async def test_an_answer_that_the_server_did_not_capture_is_delivered_once():
    sink = RecordingSink()
    tokens = TokenDelivery(sink)
    for is_captured_by_server in (True, False):
        async with tokens.open_call("1-0", "mc_1") as call:
            assert call is not None
            if is_captured_by_server:
                await capture_tokens(ANSWER)
        await tokens.start_delivery(call, recorded(ANSWER))
    assert sink.calls == [PUT, PUT]


async def test_a_call_that_failed_marks_the_rollout_even_if_its_tokens_were_put():
    sink = RecordingSink()
    async with TokenDelivery(sink).open_call("1-0", "mc_1") as call:
        assert call is not None
        await capture_tokens(ANSWER)
    await TokenDelivery(sink).start_delivery(call, recorded(failure="client_disconnected"))
    assert sink.calls == [PUT, MARK]


async def test_closing_waits_for_what_is_under_way_and_closes_the_sink():
    sink = RecordingSink()
    tokens = TokenDelivery(sink)
    answered: Future[RecordedAnswer] = Future()
    tokens.start_delivery(context(sink), answered)
    closing = asyncio.create_task(tokens.close())
    await asyncio.sleep(0)
    assert sink.calls == []
    answered.set_result(RecordedAnswer(ANSWER, None))
    await closing
    assert sink.calls == [PUT, ("close",)]


async def test_a_sink_that_fails_to_close_does_not_stop_the_shutdown(caplog: pytest.LogCaptureFixture):
    await TokenDelivery(RecordingSink(close=1)).close()
    await TokenDelivery().close()
    assert "close is away" in caplog.text


async def test_an_installed_sink_goes_first_and_is_closed_by_its_owner():
    own, installed = RecordingSink(), RecordingSink()
    tokens = TokenDelivery(own)
    install_token_sink(installed)
    try:
        assert installed_token_sink() is installed
        async with tokens.open_call("1-0", "mc_1") as call:
            assert call is not None
            await tokens.start_delivery(call, recorded(ANSWER))
        await tokens.close()
    finally:
        install_token_sink(None)
    assert (installed.calls, own.calls) == ([PUT], [("close",)])
    assert TokenDelivery().has_sink() is False
    async with TokenDelivery().open_call("1-0", "mc_1") as nothing:
        assert nothing is None
