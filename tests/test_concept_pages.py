# SPDX-License-Identifier: Apache-2.0
"""What the concept pages state as fact is what the code does."""

import re
from typing import get_args

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym._results.metrics.intervals import compute_interval
from nemo_gym._results.metrics.pass_at_k import compute_pass_majority
from nemo_gym._transport import retries
from nemo_gym._transport.failures import FailureKind

CONCEPTS = PARENT_DIR / "docs" / "concepts"
FAILURES = (CONCEPTS / "failures.md").read_text()


def test_the_page_of_failures_has_every_kind_and_no_other():
    kinds = FAILURES.split("## Kinds")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", kinds, re.M)) == get_args(FailureKind)


@pytest.mark.parametrize("kind", ["model_endpoint", "model_reply_invalid", "session_lost", "timeout"])
def test_the_page_of_failures_says_how_often_a_kind_is_played(kind):
    (row,) = re.findall(rf"^\| `{kind}` \|.*$", FAILURES, re.M)
    assert f"{retries.RetryRules().rule(kind).attempts} attempts" in row


def test_the_page_of_failures_has_the_attempts_of_the_retry_table():
    policy = retries.RetryPolicy()
    assert f"| {policy.unsent}; while servers start, {retries.WHILE_STARTING.unsent} |" in FAILURES
    statuses = ", ".join(map(str, retries.BUSY_ENDPOINT_STATUSES))
    assert f"busy or away ({statuses}) | {retries.ENDPOINT_ATTEMPTS} |" in FAILURES
    assert f"that answers 500 | {retries.BROKEN_ENDPOINT_ATTEMPTS} |" in FAILURES


def test_the_example_of_the_page_of_metrics_is_computed_like_this():
    text = (CONCEPTS / "metrics.md").read_text()
    tasks = [[{"reward": reward} for reward in rewards] for rewards in ([1, 0, 0, 1], [0, 0, 0, 1])]
    metrics = compute_pass_majority(tasks).metrics
    shown = re.findall(r"^\| `(pass@[^`]+)` \|.*\| ([\d.]+) \|$", text, re.M)
    assert len(shown) == 4
    for name, value in shown:
        assert metrics[f"{name}/accuracy"] == pytest.approx(float(value), abs=0.005)


def test_five_of_five_is_no_proof_of_always():
    text = (CONCEPTS / "metrics.md").read_text()
    assert f"Five of five gives {compute_interval([1.0] * 5, binary=True).low:.2f} … 1." in text
