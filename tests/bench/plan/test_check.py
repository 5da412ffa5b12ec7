# SPDX-License-Identifier: Apache-2.0
import pytest

from nemo_gym._bench.plan.check import Checked, check, rows_of


def test_a_forecast_is_close_within_a_fifth_either_way():
    assert Checked("a", real=100, planned=119, share=1).is_close
    assert Checked("a", real=119, planned=100, share=1).is_close
    assert not Checked("a", real=100, planned=125, share=1).is_close
    assert not Checked("a", real=125, planned=100, share=1).is_close
    assert [row.verdict for row in rows_of([Checked("a", 100, 125, 1)])] == ["", "", "OVER", ""]


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_three_real_runs_are_within_a_fifth_of_their_forecasts():
    for one in check():
        assert one.is_close, one
