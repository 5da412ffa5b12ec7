# SPDX-License-Identifier: Apache-2.0
"""How long a caller waits before it tries again."""

import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, strategies as st

from nemo_gym._transport.retries import LONGEST_PAUSE_S, RetryRule, retry_after_s

RULE = RetryRule(attempts=9, first_pause_s=1.0)
NOW = datetime(2025, 1, 1, 12, 0, tzinfo=UTC)


class Highest(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return b


def test_the_pause_doubles_up_to_a_bound():
    pauses = [RULE.draw_pause_s(attempt, Highest()) for attempt in range(1, 9)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


@given(attempt=st.integers(1, 10_000), seed=st.integers())
def test_the_pause_is_spread_between_half_and_all_of_its_bound(attempt, seed):
    pause = RULE.draw_pause_s(attempt, random.Random(seed))
    assert RULE.first_pause_s / 2 <= pause <= LONGEST_PAUSE_S
    assert RULE.draw_pause_s(attempt, Highest()) / 2 <= pause <= RULE.draw_pause_s(attempt, Highest())


@pytest.mark.parametrize("name", ["Retry-After", "retry-after", "RETRY-AFTER"])
def test_seconds_are_honoured_whatever_the_case_of_the_header(name):
    assert retry_after_s({"Date": "x", name: " 7 "}, NOW) == 7


def test_a_date_in_retry_after_is_honored():
    assert retry_after_s({"Retry-After": format_datetime(NOW + timedelta(seconds=9), usegmt=True)}, NOW) == 9


def test_a_date_without_zone_is_in_utc():
    assert retry_after_s({"Retry-After": "Wed, 01 Jan 2025 12:00:05 -0000"}, NOW) == 5


@pytest.mark.parametrize("value", ["0", "-3", "0.0001", "Wed, 01 Jan 2020 12:00:00 GMT"])
def test_at_once_is_no_pause_to_ask_for(value):
    assert retry_after_s({"Retry-After": value}, NOW) is None


@pytest.mark.parametrize("value", ["86400", "inf", "Wed, 01 Jan 2031 12:00:00 GMT"])
def test_a_server_cannot_make_us_wait_for_a_day(value):
    assert retry_after_s({"Retry-After": value}, NOW) == LONGEST_PAUSE_S


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "soon"}, {"Retry-After": ""}, {"Retry-After": "nan"}])
def test_no_readable_wish_is_none(headers):
    assert retry_after_s(headers, NOW) is None


@given(st.text())
def test_no_header_value_breaks_it(value):
    wanted = retry_after_s({"Retry-After": value}, NOW)
    assert wanted is None or 0 < wanted <= LONGEST_PAUSE_S
