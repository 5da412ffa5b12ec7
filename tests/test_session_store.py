# SPDX-License-Identifier: Apache-2.0
import pickle

import pytest
from fastapi import HTTPException, Request
from hypothesis import given, strategies as st

from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.session_store import SessionStore, UnknownSession


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_state_is_kept_per_session():
    store = SessionStore[list]()
    store["a"] = [1]
    store["b"] = [2]
    store["a"].append(3)
    assert (store["a"], store["b"], len(store)) == ([1, 3], [2], 2)


def test_an_unknown_session_says_what_to_do():
    with pytest.raises(UnknownSession, match="seed_session") as caught:
        SessionStore[int]()["nobody"]
    assert isinstance(caught.value, KeyError)
    assert pickle.loads(pickle.dumps(caught.value)).session_id == "nobody"


def test_idle_sessions_expire_and_used_ones_do_not():
    clock = Clock()
    store = SessionStore[int](ttl_s=10, clock=clock)
    store["idle"], store["used"] = 1, 2
    clock.now = 6
    assert store["used"] == 2
    clock.now = 12
    assert list(store) == ["used"]


def test_a_full_store_drops_what_was_unused_longest_and_says_so():
    dropped = []
    store = SessionStore[int](max_sessions=2, on_drop=lambda *entry: dropped.append(entry))
    store["a"], store["b"] = 1, 2
    assert store["a"] == 1
    store["c"] = 3
    assert (sorted(store), dropped) == (["a", "c"], [("b", 2)])


def test_popped_state_is_gone_without_a_drop():
    dropped = []
    store = SessionStore[int](on_drop=lambda *entry: dropped.append(entry))
    store["a"] = 1
    assert (store.pop("a"), store.pop("a", 7), "a" in store, dropped) == (1, 7, False, [])


def test_state_is_made_once():
    store, made = SessionStore[list](), []
    for _ in range(2):
        store.get_or_create("a", lambda: made.append(1) or [])
    assert made == [1]


@given(st.lists(st.sampled_from("abcdefgh")), st.integers(1, 4))
def test_the_store_never_grows_over_its_bound(keys, bound):
    store = SessionStore[int](max_sessions=bound)
    for key in keys:
        store[key] = 1
        assert len(store) <= bound
        assert key in store


@pytest.mark.parametrize("bad", [{"ttl_s": 0}, {"max_sessions": 0}])
def test_bounds_must_be_positive(bad):
    with pytest.raises(ValueError, match="positive"):
        SessionStore[int](**bad)


def test_a_request_is_given_the_state_of_its_session_or_refused():
    store = SessionStore[int]()
    store["a"] = 1
    assert store.of_request(Request({"type": "http", "session": {SESSION_ID_KEY: "a"}})) == 1
    with pytest.raises(HTTPException, match="seed_session") as refused:
        store.of_request(Request({"type": "http", "session": {SESSION_ID_KEY: "b"}}))
    assert refused.value.status_code == 400
