# SPDX-License-Identifier: Apache-2.0
"""Token counts over the turns of a rollout."""

from hypothesis import given, settings, strategies as st

from nemo_gym._wire.schema.tokens import NeMoGymResponseUsage, accumulate_response_usage
from tests.wire import strategies as wire

usages = wire.usages.map(NeMoGymResponseUsage.model_validate)


def usage(cached: int | None = 0, reasoning: int | None = 0) -> NeMoGymResponseUsage:
    return NeMoGymResponseUsage(
        input_tokens=10,
        input_tokens_details={"cached_tokens": cached, "cache_write_tokens": 2},
        output_tokens=5,
        output_tokens_details={"reasoning_tokens": reasoning},
        total_tokens=15,
    )


def test_the_usage_of_two_responses_adds_up():
    total = accumulate_response_usage(usage(cached=3, reasoning=1), usage(cached=4, reasoning=2))
    assert total == NeMoGymResponseUsage(
        input_tokens=20,
        input_tokens_details={"cached_tokens": 7, "cache_write_tokens": 4},
        output_tokens=10,
        output_tokens_details={"reasoning_tokens": 3},
        total_tokens=30,
    )


def test_nothing_known_is_none():
    assert accumulate_response_usage(None, None) is None
    assert NeMoGymResponseUsage.sum_from_list([None]) is None


def test_no_usage_at_all_sums_up_to_zeros():
    assert NeMoGymResponseUsage.sum_from_list([]).model_dump() == {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
    }


def test_the_first_usage_starts_the_total_without_being_shared():
    first = usage()
    total = accumulate_response_usage(None, first)
    assert total == first
    assert total is not first
    assert accumulate_response_usage(first, None) == first


def test_a_detail_that_one_turn_does_not_know_counts_as_0_in_the_sum():
    total = accumulate_response_usage(usage(cached=None, reasoning=2), usage(cached=4, reasoning=2))
    assert total.input_tokens_details.cached_tokens == 4
    assert total.output_tokens_details.reasoning_tokens == 4


@settings(max_examples=30, deadline=None)
@given(st.lists(st.none() | usages, min_size=1, max_size=6))
def test_accumulating_turn_by_turn_gives_the_sum_of_all(turns):
    total = None
    for turn in turns:
        total = accumulate_response_usage(total, turn)
    assert total == NeMoGymResponseUsage.sum_from_list(turns)
