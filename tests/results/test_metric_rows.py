# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of metrics."""

from nemo_gym._results.metric_rows import metric_rows

WHOLE = {"estimate": 0.5, "ci95": [0.2, 0.8], "n_scored": 12, "n_requested": 16}


def shown(key_metrics, agent_metrics):
    entry = {"confidence": {"mean/reward": WHOLE}, "key_metrics": key_metrics, "agent_metrics": agent_metrics}
    return {row.name: row.scored_text for row in metric_rows(entry)}


def test_a_metric_of_a_category_shows_what_it_rests_on_and_never_the_whole():
    key_metrics = {"mean/reward": 0.5, "mean/reward/easy": 0.7, "hard/pass@1/accuracy": 20.0, "own": 3.0}
    agent_metrics = {**key_metrics, "n_scored/mean/reward/easy": 4, "hard/n_scored": 8}
    assert shown(key_metrics, agent_metrics) == {
        "mean/reward": "12 of 16",
        "mean/reward/easy": "4",
        "hard/pass@1/accuracy": "8",
        "own": "",
    }
