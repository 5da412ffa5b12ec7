# SPDX-License-Identifier: Apache-2.0
"""Numbers over the calls of a rollout."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym._capture.metrics import aggregate_model_call_records
from nemo_gym._capture.records import ModelCallRecord


def test_tokens_and_latencies_add_up_and_a_number_that_no_call_told_is_none():
    calls = [
        ModelCallRecord(call_index=0, tokens_in=3, tokens_out=1, tokens_total=4, latency_total_ms=100.5),
        ModelCallRecord(call_index=1, tokens_in=5, cached_tokens=0, latency_total_ms=300.0),
        ModelCallRecord(call_index=2, error_category="rate_limit"),
    ]
    assert aggregate_model_call_records(calls) == {
        "num_calls": 3,
        "tokens_in": 8,
        "tokens_out": 1,
        "tokens_reasoning": None,
        "tokens_total": 4,
        "cached_tokens": 0,
        "latency_total_ms": 400.5,
    }


def test_no_calls_give_no_invented_numbers():
    metrics = aggregate_model_call_records([])
    assert metrics.pop("num_calls") == 0
    assert set(metrics.values()) == {None}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | st.integers(0, 1000), max_size=8))
def test_calls_that_tell_nothing_do_not_change_a_sum(counts: list[int | None]):
    calls = [ModelCallRecord(call_index=place, tokens_in=count) for place, count in enumerate(counts)]
    known = [count for count in counts if count is not None]
    assert aggregate_model_call_records(calls)["tokens_in"] == (sum(known) if known else None)
