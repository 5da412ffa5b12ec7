# SPDX-License-Identifier: Apache-2.0
"""Comparing runs task by task."""

import random
from itertools import product

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import integers, lists, tuples

from nemo_gym._results.compare_files import compare, explain_tests, make_comparison_table
from nemo_gym._results.metrics import paired_comparison as module
from nemo_gym._results.metrics.paired_comparison import RunRewards, compute_mcnemar_p
from nemo_gym._results.metrics.rollout_metrics import ResultsError


def by_brute_force(only_first, only_second):
    """Of all ways in which n coins can fall, the share that is at least as uneven."""
    n, uneven = only_first + only_second, abs(only_first - only_second)
    ways = [abs(2 * sum(coins) - n) >= uneven for coins in product((0, 1), repeat=n)]
    return sum(ways) / len(ways)


@pytest.mark.parametrize(("b", "c"), [(b, c) for b in range(6) for c in range(6)])
def test_mcnemar_is_exact(b, c):
    assert compute_mcnemar_p(b, c) == pytest.approx(by_brute_force(b, c))


def test_mcnemar_p_of_many_tasks_does_not_overflow():
    # Twice the share of the 2^1000 ways that thousand coins fall with at most 430 heads.
    assert compute_mcnemar_p(430, 570) == pytest.approx(1.0709e-05, rel=1e-3)


def test_runs_are_paired_by_task(run):
    a = run("a.jsonl", [[1.0], [0.0], [0.0], [0.0]])
    b = run("b.jsonl", [[1.0], [1.0], [1.0], [0.0]])
    [one] = compare([a, b]).comparisons
    assert (one.n_paired, one.baseline_mean, one.run_mean, one.difference) == (4, 0.25, 0.75, 0.5)
    assert (one.wins, one.losses, one.ties) == (2, 0, 2)
    # Differences 0, 1, 1, 0: standard error sqrt(1/3 / 4); t(3) at 97.5 % and 80 % are 3.1824 and 0.9785.
    assert one.stderr == pytest.approx(0.288675, abs=1e-6)
    assert one.minimum_detectable_effect == pytest.approx((3.182446 + 0.978472) * 0.288675, abs=1e-5)
    # Two more tasks that differ by chance: mean 2/6, sum of squares 3 - 6/9.
    assert one.ci95 == pytest.approx((1 / 3 - 3.182446 * 0.254588, 1.0), abs=1e-5)
    assert (one.mcnemar.only_baseline_passed, one.mcnemar.only_run_passed, one.mcnemar.p_value) == (0, 2, 0.5)


def test_the_means_of_repeated_rollouts_are_compared(run):
    a = run("a.jsonl", [[1.0, 0.0], [0.0, 0.0]])
    b = run("b.jsonl", [[1.0, 1.0, 1.0, 0.0], [0.0]])
    [one] = compare([a, b]).comparisons
    assert one.difference == pytest.approx(0.125)
    assert (one.wins, one.ties) == (1, 1)


def test_tasks_that_one_run_lacks_are_reported(run):
    a = run("a.jsonl", [[1.0], [None], [1.0]])
    b = run("b.jsonl", [[1.0], [1.0], [None], [0.0]])
    compared = compare([a, b])
    [one] = compared.comparisons
    assert (one.n_paired, one.only_in_baseline, one.only_in_run) == (1, (2,), (1, 3))
    assert one.ci95 is None
    assert one.minimum_detectable_effect is None
    assert [(entry["n_scored"], entry["n_requested"]) for entry in compared.as_json()["runs"]] == [(2, 3), (3, 4)]


def test_tasks_that_are_not_the_same_are_no_pair(write, planned, result):
    for name, answers in (("a", ["1", "2"]), ("b", ["1", "3"])):
        rows = [planned(t, 0, agent=name) | {"answer": answer} for t, answer in enumerate(answers)]
        write(f"{name}_materialized_inputs.jsonl", rows)
    a, b = (write(f"{name}.jsonl", [result(t, 0, 1.0, name) for t in (0, 1)]) for name in "ab")
    [one] = compare([a, b]).comparisons
    assert (one.n_paired, one.different_tasks) == (1, (1,))


def test_runs_without_a_common_task_are_an_error(write, result):
    a, b = write("a.jsonl", [result(0, 0, 1.0)]), write("b.jsonl", [result(1, 0, 1.0)])
    with pytest.raises(ResultsError, match="have no task in common"):
        compare([a, b])


@pytest.mark.parametrize("rows", [[], [{"reward": None}]])
def test_a_run_without_scores_is_an_error(write, result, rows):
    with pytest.raises(ResultsError, match=r"b\.jsonl' holds no scored rollout"):
        compare([write("a.jsonl", [result(0, 0, 1.0)]), write("b.jsonl", rows)])


def test_one_run_cannot_be_compared(write):
    with pytest.raises(ResultsError, match="at least two runs"):
        compare([write("a.jsonl", [])])


def test_pass_or_fail_needs_a_threshold_where_rewards_are_finer(run):
    a, b = run("a.jsonl", [[0.2], [0.9]]), run("b.jsonl", [[0.8], [0.9]])
    assert compare([a, b]).comparisons[0].mcnemar is None
    mcnemar = compare([a, b], pass_threshold=0.5).comparisons[0].mcnemar
    assert (mcnemar.only_baseline_passed, mcnemar.only_run_passed, mcnemar.pass_threshold) == (0, 1, 0.5)


def test_more_rollouts_in_one_run_are_not_taken_for_better_ones():
    # Every rollout of both runs passes with the same chance of a half; one run has two of each task.
    draw = random.Random(0)
    false_alarms = 0
    for _ in range(200):
        one = RunRewards("one", {t: [draw.randint(0, 1)] for t in range(100)}, {}, None)
        two = RunRewards("two", {t: [draw.randint(0, 1), draw.randint(0, 1)] for t in range(100)}, {}, None)
        false_alarms += module.compare_rewards(one, two).p_value < 0.05
    assert false_alarms <= 18  # 10 are expected; more than 18 happen once in 200 times


def test_unequal_repeats_are_tested_by_their_means_and_the_table_says_why(run):
    a, b = run("a.jsonl", [[1.0], [0.0], [0.0]]), run("b.jsonl", [[1.0, 0.0], [1.0, 1.0], [0.0]])
    compared = compare([a, b])
    [one] = compared.comparisons
    assert (one.mcnemar, one.test) == (None, "paired_t")
    # Differences -0.5, 1, 0: mean 1/6, standard error sqrt(7/12 / 3), t = 0.378 with 2 degrees of freedom.
    assert one.p_value == pytest.approx(0.7418, abs=1e-4)
    assert make_comparison_table(compared)[2][6] == "0.742 (paired t)"
    [reason] = explain_tests(compared)
    assert reason.endswith("because the runs have different numbers of rollouts of 2 of 3 tasks")


@pytest.mark.parametrize(("rewards", "p"), [([[0.0, 0.0]] * 4, 1.0), ([[1.0, 1.0]] * 4, 0.125)])
def test_differences_without_spread_have_the_p_of_a_sign_test(run, rewards, p):
    a, b = run("a.jsonl", [[0.0]] * 4), run("b.jsonl", rewards)
    assert compare([a, b]).comparisons[0].p_value == p


def test_every_run_is_compared_with_the_first(run):
    paths = [run(f"{name}.jsonl", [[reward], [0.0]]) for name, reward in (("a", 0.0), ("b", 1.0), ("c", 0.0))]
    compared = compare(paths)
    assert [one.difference for one in compared.comparisons] == [0.5, 0.0]
    table = make_comparison_table(compared)
    assert {len(row) for row in table} == {len(table[0])}
    assert table[2][1:4] == ["0.5", "2 of 2", "+0.5 (2 tasks)"]
    assert orjson.loads(orjson.dumps(compared.as_json()))["schema"] == 1


def test_the_difference_of_graded_rewards_has_students_interval(run):
    a, b = run("a.jsonl", [[0.0]] * 4), run("b.jsonl", [[0.5], [0.0]] * 2)
    [one] = compare([a, b]).comparisons
    assert one.ci95_method == "t"
    assert one.ci95 == pytest.approx((0.25 - 3.182446 * 0.144338, 0.25 + 3.182446 * 0.144338), abs=1e-5)


def test_equal_outcomes_do_not_prove_that_runs_are_equal(run):
    a = run("a.jsonl", [[1.0]] * 10)
    low, high = compare([a, a]).comparisons[0].ci95
    assert low == -high
    assert high > 0.1
    graded = run("g.jsonl", [[0.3]] * 10)
    assert compare([graded, graded]).comparisons[0].ci95 is None


@given(lists(tuples(integers(0, 1), integers(0, 1)), min_size=2, max_size=20))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_swapping_the_runs_turns_everything_round(pairs):
    runs = [RunRewards(str(i), {t: [pair[i]] for t, pair in enumerate(pairs)}, {}, None) for i in (0, 1)]
    there = module.compare_rewards(runs[0], runs[1])
    back = module.compare_rewards(runs[1], runs[0])
    assert there.n_paired == len(pairs) == there.wins + there.losses + there.ties
    assert (there.wins, there.losses, there.difference) == (back.losses, back.wins, pytest.approx(-back.difference))
    assert there.mcnemar.p_value == back.mcnemar.p_value
