# SPDX-License-Identifier: Apache-2.0
from contextlib import contextmanager

import orjson
import pytest

from nemo_gym._training.session_record import SessionLabels
from nemo_gym._training.sessions import SessionBook, SessionLimits, SessionRefused
from nemo_gym.trajectories import TrainableRollout

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3, 4], "generation_log_probs": [-0.1, -0.2]}


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def make_book(clock, **limits):
    usual = {"max_sessions": 3, "max_memory_bytes": 10_000, "idle_timeout_s": 60, "max_duration_s": 600}
    return SessionBook(
        SessionLimits(**{**usual, "keep_ended_s": 3600, "open_on_first_call": True, **limits}), clock=clock
    )


@pytest.fixture
def book(clock):
    return make_book(clock)


def answer(text="hei", **fields):
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text, **fields}}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


def call(book, session_id, given=None, error=None):
    session, made = book.begin_call(session_id, "chat", "any")
    made.request = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "a"}], "temperature": 1})
    if given is not None:
        made.note_answer(given)
    made.error = error
    book.end_call(session, made)
    return session


@contextmanager
def refusal(status, says):
    with pytest.raises(SessionRefused, match=rf"(?s){says}.*hint: ") as caught:
        yield
    assert caught.value.status == status


def test_a_session_begins_with_its_first_call_and_is_done_with_its_reward(book):
    session = call(book, "s", answer(**TOKENS))
    assert session.status == "open"
    assert session.to_json(with_traces=True)["rollout"] is None
    book.set_reward("s", 0.5, {"style": 0.5}, final=True)
    told = session.to_json(with_traces=True)
    assert (told["status"], told["reward"], told["components"], told["failure"]) == ("done", 0.5, {"style": 0.5}, None)
    (trace,) = told["traces"]
    assert trace["messages"] == [{"role": "user", "content": "a"}]
    assert trace["params"] == {"model": "m", "temperature": 1}
    assert (trace["prompt_token_ids"], trace["completion_token_ids"], trace["logprobs"]) == (
        [1, 2],
        [3, 4],
        [-0.1, -0.2],
    )
    assert "prompt_token_ids" not in trace["response"]["choices"][0]["message"], "they are told once"
    rollout = TrainableRollout.from_json(told["rollout"])
    assert rollout.is_valid
    assert (rollout.reward, rollout.main_branch.completion_ids, rollout.turns[0].source) == (0.5, [3, 4], "session")


def test_a_session_whose_agent_died_fails_by_its_deadline_and_has_no_reward(book, clock):
    session = call(book, "s", answer(**TOKENS))
    book.set_reward("s", 1.0, {}, final=False)
    clock.now += 59
    assert book.find("s").status == "open"
    clock.now += 1
    told = book.find("s").to_json(with_traces=True)
    assert (told["status"], told["reward"], told["failure"]["kind"]) == ("failed", None, "timeout")
    rollout = TrainableRollout.from_json(told["rollout"])
    assert (rollout.reward, rollout.failure, rollout.is_valid) == (None, "timeout", False)
    assert rollout.turns, "what it said is kept"
    with refusal(409, "'s' has failed: no call and no final reward came for 60 s"):
        book.set_reward("s", 1.0, {}, final=True)
    assert session.reward == 1.0, "it was said, and counts for nothing"


def test_a_long_call_keeps_a_session_alive_until_it_has_lasted_too_long(book, clock):
    session, made = book.begin_call("s", "chat", "any")
    clock.now += 500
    assert book.find("s").status == "open"
    clock.now += 100
    assert book.find("s").status == "failed"
    assert (session.lost_calls, session.calls) == (1, [])
    made.note_answer(answer())
    book.end_call(session, made)
    assert (session.calls, session.under_way) == ([], 0)


def test_the_id_of_a_session_that_ended_or_was_deleted_is_not_used_again(book):
    call(book, "s", answer())
    book.set_reward("s", 1.0, {}, final=True)
    with refusal(409, "'s' has ended with the reward 1.0; the model was not asked"):
        book.begin_call("s", "chat", "any")
    with refusal(409, "session 's' already exists"):
        book.create("s")
    book.delete("s")
    with refusal(409, "'s' was deleted"):
        book.begin_call("s", "chat", "any")
    with refusal(409, "'s' was deleted"):
        book.create("s")
    with refusal(404, "'s' was deleted"):
        book.find("s")
    with refusal(404, "no session 't'"):
        book.find("t")


def test_a_final_reward_may_be_said_twice_but_not_changed(book):
    call(book, "s", answer())
    for _ in range(2):
        assert book.set_reward("s", 1.0, {"a": 1.0}, final=True).reward == 1.0
    for reward, components in ((0.0, {"a": 1.0}), (1.0, {})):
        with refusal(409, "has ended with the reward 1.0"):
            book.set_reward("s", reward, components, final=True)
    with refusal(409, "it cannot fail any more"):
        book.fail("s", "agent", "crashed")


def test_a_session_may_be_said_to_have_failed(book):
    call(book, "s", answer())
    for _ in range(2):
        assert book.fail("s", "agent", "the program crashed").failure == ("agent", "the program crashed")
    assert book.find("s").to_rollout().failure == "agent"


def test_a_full_book_refuses_new_sessions_and_drops_none(book):
    for name in "abc":
        call(book, name, answer())
    with refusal(429, "3 sessions already"):
        book.begin_call("d", "chat", "any")
    call(book, "a", answer())
    assert book.create("of the trainer").status == "open"
    book.delete("b")
    book.delete("c")
    call(book, "d", answer())


def test_a_session_that_a_call_opens_with_the_key_of_another_takes_nothing_from_it(book):
    mine = book.create("mine")
    book.begin_call("invented", "chat", mine.key)
    assert book.find_by_key(mine.key) is mine
    book.delete("invented")
    assert book.find_by_key(mine.key) is mine


def test_memory_is_bounded_and_free_again_with_the_sessions_that_are_deleted(clock):
    book = make_book(clock, max_memory_bytes=1500)
    call(book, "a", answer("x" * 2000))
    with refusal(429, "sessions hold .* bytes"):
        book.begin_call("b", "chat", "any")
    with refusal(429, "sessions hold .* bytes"):
        book.begin_call("a", "chat", "any")
    book.delete("a")
    assert book._size_bytes == 0
    call(book, "b", answer())


def test_what_nobody_deletes_goes_when_its_time_is_over(book, clock, caplog):
    call(book, "s", answer())
    book.set_reward("s", 1.0, {}, final=True)
    clock.now += 3600
    with refusal(404, "was deleted"):
        book.find("s")
    assert "'s' was never fetched" in caplog.text
    assert book._size_bytes == 0


def test_ended_sessions_are_listed_by_a_cursor_in_the_order_of_their_ends(clock):
    book = make_book(clock, max_sessions=10)
    for name in "abcd":
        call(book, name, answer())
    for name in "cab":
        book.set_reward(name, 1.0, {}, final=True)
    first = book.list_sessions(done=True, after=0, limit=2)
    assert [one.id for one in first] == ["c", "a"]
    assert [one.id for one in book.list_sessions(done=True, after=first[-1].end_number, limit=2)] == ["b"]
    assert [one.id for one in book.list_sessions(done=False, after=0, limit=9)] == ["d"]
    assert [one.id for one in book.list_sessions(done=None, after=1, limit=9)] == ["b", "c", "d"]
    clock.now += 60
    assert [one.id for one in book.list_sessions(done=True, after=3, limit=9)] == ["d"], "it has just failed"


def test_a_key_stands_for_its_session(book):
    session = book.create(None, SessionLabels(3, 1, "agent", {"run": 7}))
    assert book.find_by_key(session.key) is session
    assert session.to_json(with_traces=False)["metadata"] == {"run": 7}
    assert session.to_rollout().group == ("agent", 3)
    book.delete(session.id)
    with refusal(401, "not the key of a session"):
        book.find_by_key(session.key)


def test_calls_that_failed_are_traces_but_no_turns(book):
    call(book, "s", answer(**TOKENS))
    call(book, "s", None, error="status 500")
    session = call(
        book, "s", answer(prompt_token_ids=[1, 2, 3, 4, 5], generation_token_ids=[6], generation_log_probs=[0.0])
    )
    book.set_reward("s", 1.0, {}, final=True)
    told = session.to_json(with_traces=True)
    assert [trace["error"] for trace in told["traces"]] == [None, "status 500", None]
    rollout = TrainableRollout.from_json(told["rollout"])
    assert rollout.is_valid
    assert [branch.mask for branch in rollout.branches] == [[1, 1, 0, 1]]


def test_a_session_of_which_only_some_calls_have_tokens_must_not_be_trained_on(book):
    call(book, "s", answer(**TOKENS))
    session = call(book, "s", answer())
    book.set_reward("s", 1.0, {}, final=True)
    assert session.to_rollout().invalid == "1 of 2 calls have no tokens"


def test_versions_are_told_also_without_tokens(book):
    call(book, "s", {**answer(), "policy_version": 7})
    session = call(book, "s", {**answer(), "policy_version": 7, "policy_version_end": 8})
    rollout = session.to_rollout()
    assert (rollout.policy_versions, rollout.straddles_versions) == ((7, 8), True)
