# SPDX-License-Identifier: Apache-2.0
"""What the plots of the overview draw."""

from nemo_gym._reports.histogram import histogram_of
from nemo_gym._reports.overview import AgentOverview, Overview, Point, TaskRate, TokenUsage
from nemo_gym._view import plots


def point(reward: float, length: int = 10, tool_calls: int = 0) -> Point:
    return Point(0, 0, "a", reward, length, tool_calls, None)


def agent(name: str = "a", rates: tuple[TaskRate, ...] = (), rewards: tuple[float, ...] = ()) -> AgentOverview:
    usage = TokenUsage(2, 300, 80, 150.0, 40.0, 50)
    spread = histogram_of(rewards)
    return AgentOverview(name, 0, 0, 0, None, True, [], spread, list(rates), histogram_of([0.5] * 40), usage, {}, {})


def rate(task: int, passed: float, n: int) -> TaskRate:
    return TaskRate(task, str(task), n, passed, passed, 0)


def test_nothing_is_drawn_where_there_is_nothing():
    assert plots.rewards(agent()).is_empty
    assert plots.by_length([]).is_empty
    assert plots.by_tool_calls([]).is_empty
    assert plots.tokens([]).is_empty


def test_a_bar_for_each_reward_where_there_are_few():
    drawn = plots.rewards(agent(rewards=(0.0, 1.0, 1.0)))
    assert drawn.columns == {"reward": ["0", "1"], "rollouts": [1, 2]}


def test_a_task_that_several_agents_played_is_one_bar_worst_first():
    drawn = plots.pass_rates(agent(rates=(rate(1, 1.0, 3), rate(0, 0.0, 4), rate(1, 0.0, 1))))
    assert drawn.columns == {"task": ["0", "1"], "pass rate": [0.0, 0.75]}


def test_many_tasks_are_counted_by_their_pass_rate():
    drawn = plots.pass_rates(agent(rates=tuple(rate(task, 0.5, 4) for task in range(40))))
    assert drawn.columns == {"pass rate": ["0.5"], "tasks": [40]}


def test_rewards_by_tool_calls_are_means_and_say_of_how_many():
    drawn = plots.by_tool_calls([point(1.0, tool_calls=2), point(0.0, tool_calls=2), point(1.0, tool_calls=0)])
    assert drawn.columns == {"tool calls": ["0", "2"], "mean reward": [1.0, 0.5], "rollouts": [1, 2]}


def test_many_numbers_of_tool_calls_end_in_one_bar():
    drawn = plots.by_tool_calls([point(1.0, tool_calls=number) for number in range(30)])
    assert drawn.columns["tool calls"][-2:] == ["10", "11 or more"]
    assert drawn.columns["rollouts"][-1] == 19


def test_rewards_by_length_are_in_groups_of_one_size():
    drawn = plots.by_length([point(float(length >= 40), length) for length in range(80)])
    assert drawn.columns["rollouts"] == [10] * 8
    assert drawn.columns["mean reward"] == [0.0] * 4 + [1.0] * 4


def test_equal_lengths_stay_in_one_group():
    drawn = plots.by_length([point(1.0, 5)] * 20)
    assert drawn.columns == {"characters written": ["≤ 5"], "mean reward": [1.0], "rollouts": [20]}


def test_tokens_are_shown_for_each_agent():
    drawn = plots.tokens([agent("a"), agent("b")])
    assert drawn.columns["agent"] == ["a", "a", "b", "b"]
    assert drawn.columns["tokens per rollout"] == [150.0, 40.0] * 2


def test_failures_are_drawn_most_frequent_first():
    from nemo_gym._reports.failures import FailureCount

    counted = [FailureCount("model", 1, 1, [], [], True), FailureCount("timeout", 5, 5, [], [], True)]
    report = Overview("f", "rollouts", 0, 0, 0, 6, None, True, 0, [], counted, [])
    assert plots.failures(report).columns == {"failure": ["timeout", "model"], "rollouts": [5, 1]}


def test_shares_are_drawn_on_the_scale_of_all_shares():
    assert plots.by_length([point(0.25)]).y_range == (0.0, 1.0)
    assert plots.pass_rates(agent(rates=(rate(1, 0.5, 2),))).y_range == (0.0, 1.0)


def test_rewards_below_zero_have_their_place():
    low, high = plots.by_tool_calls([point(-2.0), point(3.0, tool_calls=1)]).y_range
    assert (low, high) == (-2.25, 3.25)


def test_tokens_read_and_written_stand_upon_each_other():
    assert plots.tokens([agent("a")]).y_range == (0.0, 190 * 1.05)
