# SPDX-License-Identifier: Apache-2.0
import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis.strategies import floats, lists

from nemo_gym._bench.plan.distributions import (
    Exponential,
    Fixed,
    LogNormal,
    Observed,
    PlanError,
    Uniform,
    parse_amount,
    parse_distribution,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2s", Fixed(2)),
        ("400", Fixed(400)),
        ("fixed:300ms", Fixed(0.3)),
        ("fixed:value=1m", Fixed(60)),
        ("lognormal:median=2s,sigma=0.5", LogNormal(2, 0.5)),
        ("exponential:mean=250us", Exponential(250e-6)),
        ("uniform:low=1s,high=3s", Uniform(1, 3)),
    ],
)
def test_distributions_are_written_as_words(text, expected):
    assert parse_distribution("--latency", text) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fast", "'fast' is neither a number nor a time"),
        ("-2s", "'-2s' is neither a number nor a time"),
        ("normal:mean=2", "there is no distribution 'normal'.\nknown: fixed, lognormal"),
        ("lognormal:median=2s", "lognormal takes median and sigma.\ngiven: median"),
        ("lognormal:2s", "lognormal takes median and sigma"),
        ("uniform:low=3,high=1", "low is above high"),
        ("", "'' is neither a number nor a time"),
    ],
)
def test_nonsense_is_refused_with_the_flag_and_an_example(text, told):
    with pytest.raises(PlanError) as refused:
        parse_distribution("--latency", text)
    assert told in str(refused.value)
    assert str(refused.value).startswith("--latency")
    assert "hint: write for example `2s`" in str(refused.value)


@given(floats(min_value=0, max_value=1e6))
def test_an_amount_in_milliseconds_is_a_thousandth_of_one_in_seconds(value):
    assert parse_amount("--x", f"{value:.6f}ms") == pytest.approx(parse_amount("--x", f"{value:.6f}s") / 1000)


@settings(max_examples=20)
@given(floats(min_value=0.1, max_value=10), floats(min_value=0, max_value=0.8))
def test_draws_have_the_mean_that_is_told(scale, sigma):
    dice = random.Random(0)
    for one in (Fixed(scale), LogNormal(scale, sigma), Exponential(scale), Uniform(scale, 3 * scale)):
        assert fmean(one.draw(dice) for _ in range(4000)) == pytest.approx(one.mean, rel=0.1)


@given(lists(floats(min_value=0, max_value=1e3), min_size=1))
def test_what_was_observed_is_drawn_again(values):
    assert Observed(values).draw(random.Random(1)) in values
