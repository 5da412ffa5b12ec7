# SPDX-License-Identifier: Apache-2.0
from checks import error_of
from intervals.model import is_empty, make, overlap, touch
from intervals.sets import gaps, merge, subtract, total


def test_make_refuses_an_end_before_the_start():
    assert error_of(make, 3, 2) == "ValueError"
    assert make(3, 3) == (3, 3)


def test_neighbours_touch_but_do_not_overlap():
    assert touch((1, 2), (2, 3))
    assert touch((2, 3), (1, 2))
    assert not overlap((1, 2), (2, 3))
    assert not overlap((2, 3), (1, 2))
    assert not touch((1, 2), (3, 4))


def test_an_interval_inside_another_overlaps_it():
    assert overlap((0, 10), (3, 4))
    assert overlap((3, 4), (0, 10))


def test_merge_joins_neighbours():
    assert merge([(2, 3), (1, 2), (3, 4)]) == [(1, 4)]


def test_merge_keeps_the_longer_end():
    assert merge([(0, 10), (2, 3)]) == [(0, 10)]
    assert merge([(0, 10), (2, 3), (9, 12)]) == [(0, 12)]


def test_merge_drops_empty_intervals():
    assert is_empty((4, 4))
    assert merge([(4, 4), (1, 2)]) == [(1, 2)]
    assert merge([]) == []


def test_subtract_at_the_ends():
    assert subtract([(0, 10)], [(0, 2), (8, 10)]) == [(2, 8)]
    assert subtract([(0, 10)], [(-5, 2), (8, 20)]) == [(2, 8)]


def test_subtract_everything_leaves_nothing():
    assert subtract([(0, 3), (5, 8)], [(0, 8)]) == []


def test_subtract_several_holes_from_one():
    assert subtract([(0, 10)], [(6, 7), (1, 2)]) == [(0, 1), (2, 6), (7, 10)]


def test_subtract_leaves_neighbours_alone():
    assert subtract([(0, 3), (6, 9)], [(3, 6)]) == [(0, 3), (6, 9)]


def test_gaps():
    assert gaps([(2, 4), (3, 6)], (0, 10)) == [(0, 2), (6, 10)]
    assert gaps([], (0, 3)) == [(0, 3)]
    assert gaps([(-5, 50)], (0, 3)) == []


def test_total_counts_shared_numbers_once():
    assert total([(0, 5), (3, 8)]) == 8
    assert total([(0, 2), (2, 4)]) == 4
