# SPDX-License-Identifier: Apache-2.0
import os
import sys

import pytest

from nemo_gym._bench.measure import ThreadTimes, differences_of, in_unit, percentile, ratio_of, ratios_of, run_child

SAMPLES = {"ours": [2.0, 6.0, 5.0], "bare": [1.0, 2.0, 5.0]}


def test_ratios_and_differences_are_taken_within_a_round():
    assert ratios_of(SAMPLES, "ours", "bare") == [2.0, 3.0, 1.0]
    assert ratio_of(SAMPLES, "ours", "bare") == 2.0
    assert differences_of(SAMPLES, "ours", "bare") == [1.0, 4.0, 0.0]
    assert in_unit(SAMPLES, "bare", 1000) == [1000.0, 2000.0, 5000.0]


def test_a_percentile_is_one_of_the_values():
    assert percentile([5, 1, 9, 3], 0.5) == 5
    assert percentile([5, 1, 9, 3], 0.99) == 9


def test_a_child_is_measured_and_its_failure_is_an_error():
    used = run_child([sys.executable, "-c", "sum(range(300_000))"], os.environ)
    assert used.cpu_s > 0
    assert used.peak_mb > 1
    with pytest.raises(RuntimeError, match="ended with status"):
        run_child([sys.executable, "-c", "raise SystemExit(3)"], os.environ)


def test_the_times_of_threads_count_from_where_they_are_begun():
    times = ThreadTimes()
    times.look(os.getpid())
    before_s = times.ran_s
    times.begin()
    assert (times.ran_s, times.share) == (0.0, 1.0)
    while not times.ran_s:
        sum(range(100_000))
        times.look(os.getpid())
    assert 0 < times.ran_s < before_s + 10
    assert 0 < times.share <= 1


def test_a_process_that_has_ended_keeps_its_times():
    times = ThreadTimes()
    times.look(os.getpid(), 2**22 - 1)
    assert times.ran_s > 0
