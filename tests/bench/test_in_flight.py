# SPDX-License-Identifier: Apache-2.0
import pytest

from nemo_gym._bench.in_flight import measure_in_process


@pytest.mark.exhaustive
def test_rollouts_in_flight_are_counted_and_their_latency_is_less_the_endpoints_own():
    found = measure_in_process(in_flight=4, latency_s=0.05, rollouts=12)
    assert found["most_in_flight"] == 4
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    assert found["peak_mb"] > 10
    assert 0 < found["cpu_share"] <= 1
    assert found["bare_p50_ms"] > 0
