# SPDX-License-Identifier: Apache-2.0
"""Counting what differs, against a set."""

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nemo_gym._data import create_params
from nemo_gym._data.create_params import Distinct


@pytest.fixture(autouse=True, params=[10, 1 << 18], ids=["packed soon", "packed late"])
def _many(request, monkeypatch):
    monkeypatch.setattr(create_params, "_MANY", request.param)


def seen(values, compact_every=1):
    counter = Distinct()
    for number, value in enumerate(values, 1):
        counter.add(value)
        if number % compact_every == 0:
            counter.compact()
    return counter


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=2)), st.lists(st.text(max_size=2)))
def test_it_counts_as_a_set_does(ours, theirs):
    assert len(seen(ours)) == len(set(ours))
    assert len(seen(ours) | seen(theirs)) == len({*ours, *theirs})
    assert seen(ours).total == len(ours)


def test_many_values_are_counted_whether_compacted_or_not():
    values = [str(number % 7_000) for number in range(20_000)]
    for compact_every in (1, 1_500, 30_000):
        assert len(seen(values, compact_every)) == 7_000
        assert seen(values, compact_every).total == 20_000
    both = seen(values, 2_000) | seen(map(str, range(5_000, 10_000)), 2_000)
    assert len(both) == 10_000


def test_values_seen_again_and_again_take_no_room():
    counter = seen((str(number % 100) for number in range(400_000)), 2_000)
    assert len(counter._sorted) + len(counter._new) < create_params._MANY + 10_000


@pytest.mark.parametrize("has_numpy", [True, False])
def test_numbers_are_told_apart_alike_with_or_without_numpy(has_numpy, monkeypatch):
    if not has_numpy:
        monkeypatch.setattr(create_params, "_load_numpy", lambda: None)
    counter = Distinct()
    for first in range(0, 3_000, 100):
        counter.add_hashes([(1 << 62) - number * number * 10**12 for number in range(first, first + 150)])
        counter.compact()
    assert (len(counter), counter.total, len(Distinct())) == (3_050, 4_500, 0)
