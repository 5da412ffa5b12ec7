# SPDX-License-Identifier: Apache-2.0
"""Compact containers behave as the plain ones do."""

from collections import Counter

from hypothesis import given, settings, strategies as st

from nemo_gym._rollouts.compact import KeyCounts, KeySet, NumbersByDigest, TaskCounts, digest_of

tasks = st.integers(0, 200) | st.integers(0, 2**60)
keys = st.tuples(tasks, st.integers(0, 5) | st.integers(0, 2**31))


@given(st.lists(keys), st.lists(keys))
@settings(max_examples=100, deadline=None)
def test_a_key_set_behaves_like_a_set(added, others):
    compact, plain = KeySet(), set()
    for key in added:
        assert compact.add(key) == (key not in plain)
        plain.add(key)
    assert len(compact) == len(plain)
    assert all((key in compact) == (key in plain) for key in added + others)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3))))
@settings(max_examples=100, deadline=None)
def test_key_counts_count_like_a_counter(added):
    compact, plain = KeyCounts(), Counter()
    for key in added:
        plain[key] += 1
        assert compact.add(key) == plain[key]
    assert all(compact[task, rollout] == plain[task, rollout] for task in range(4) for rollout in range(4))


@given(st.lists(st.tuples(st.integers(0, 5000) | tasks, st.integers(1, 9))))
@settings(max_examples=100, deadline=None)
def test_task_counts_count_whatever_the_order_of_tasks(added):
    compact, plain = TaskCounts(), Counter()
    for task, number in added:
        compact.add(task, number)
        plain[task] += number
    assert all(compact[task] == number for task, number in plain.items())
    assert compact[2**61] == 0
    assert dict(compact) == +plain


@given(st.lists(st.binary(max_size=2)))
@settings(max_examples=100, deadline=None)
def test_texts_keep_the_number_they_were_given(texts):
    compact, plain = NumbersByDigest(), {}
    for text in texts:
        assert compact.find(digest_of(text)) == plain.get(text)
        if text not in plain:
            plain[text] = len(plain)
            compact.add(digest_of(text), plain[text])


def test_a_digest_that_only_appears_across_two_records_is_not_found():
    numbered = NumbersByDigest()
    numbered.add(bytes([1] * 16), 0x020202020202)
    numbered.add(bytes([1] * 2 + [3] * 14), 7)
    across = bytes([1] * 2) + bytes([1] * 10) + bytes([2] * 4)
    assert numbered.find(across) is None
    assert numbered.find(bytes([1] * 2 + [3] * 14)) == 7
