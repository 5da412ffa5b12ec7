# SPDX-License-Identifier: Apache-2.0
"""Numbers over the calls of a rollout."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym._capture.metrics import aggregate, result_block
from nemo_gym._capture.records import CaptureGap, ModelCallRecord, RolloutCapture


def call(latency_ms: float, **fields: object) -> ModelCallRecord:
    return ModelCallRecord.model_validate({"latency_ms": latency_ms, "status_code": 200, **fields})


def test_counts_latencies_and_tokens_add_up():
    metrics = aggregate(
        [
            call(100.0, latency_ttft_ms=10.0, response={"usage": {"input_tokens": 3, "output_tokens": 1}}),
            call(300.0, latency_ttft_ms=30.0, response={"usage": {"prompt_tokens": 5, "completion_tokens": 2}}),
            call(50.0, error_category="rate_limited"),
        ]
    )
    assert metrics == {
        "num_model_calls": 3,
        "num_failed_model_calls": 1,
        "error_categories": {"rate_limited": 1},
        "latency_ms_total": 450.0,
        "latency_ms_mean": 150.0,
        "latency_ms_max": 300.0,
        "latency_ttft_ms_mean": 20.0,
        "input_tokens": 8,
        "output_tokens": 3,
        "total_tokens": 11,
        "cached_tokens": None,
        "reasoning_tokens": None,
    }


def test_no_calls_give_zero_counts_and_no_invented_numbers():
    metrics = aggregate([])
    assert (metrics["num_model_calls"], metrics["latency_ms_mean"], metrics["total_tokens"]) == (0, None, None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_the_mean_latency_lies_between_the_extremes(latencies: list[float]):
    metrics = aggregate([call(latency) for latency in latencies])
    slack = 1e-6 * max(latencies)
    assert min(latencies) - slack <= metrics["latency_ms_mean"] <= metrics["latency_ms_max"] + slack
    assert metrics["latency_ms_max"] == max(latencies)


def test_the_block_of_a_result_row_holds_calls_metrics_and_gaps():
    capture = RolloutCapture("3-1", [call(10.0, model_call_id="a")], [CaptureGap("cancelled", None, "a")])
    block = result_block(capture)
    assert set(block) == {"rollout_id", "metrics", "calls", "gaps"}
    assert block["rollout_id"] == "3-1"
    assert block["metrics"]["num_model_calls"] == 1
    assert block["calls"][0]["model_call_id"] == "a"
    assert block["gaps"] == [{"code": "cancelled", "detail": None, "model_call_id": "a"}]
