# SPDX-License-Identifier: Apache-2.0
from checks import error_of
from taskgraph.order import find_needed, list_tasks, sort_tasks
from taskgraph.plan import count_hours, find_affected, find_critical, plan_starts

DIAMOND = {"d": ["b", "c"], "b": ["a"], "c": ["a"]}


def test_dependencies_are_tasks_too():
    assert list_tasks({"b": ["a"]}) == ["a", "b"]
    assert sort_tasks({"b": ["a"]}) == ["a", "b"]


def test_free_tasks_come_by_name():
    assert sort_tasks({"z": [], "a": ["z"], "m": []}) == ["m", "z", "a"]


def test_a_diamond_is_sorted():
    assert sort_tasks(DIAMOND) == ["a", "b", "c", "d"]


def test_a_task_named_twice_as_dependency_counts_once():
    assert sort_tasks({"b": ["a", "a"]}) == ["a", "b"]


def test_circles_are_refused():
    assert error_of(sort_tasks, {"a": ["b"], "b": ["a"], "c": []}) == "ValueError"
    assert error_of(sort_tasks, {"a": ["a"]}) == "ValueError"


def test_needed_is_found_through_others():
    assert find_needed(DIAMOND, "d") == ["a", "b", "c"]
    assert find_needed(DIAMOND, "a") == []


def test_needed_ends_in_a_circle():
    assert find_needed({"a": ["b"], "b": ["a"]}, "a") == ["a", "b"]


def test_a_task_waits_for_the_slowest():
    assert plan_starts(DIAMOND, {"a": 1, "b": 2, "c": 5, "d": 1}) == {"a": 0, "b": 1, "c": 1, "d": 6}


def test_hours_are_those_of_the_longest_chain_not_of_the_last_task():
    assert count_hours({"b": ["a"], "along": []}, {"a": 1, "b": 1, "along": 9}) == 9
    assert count_hours({}, {}) == 0


def test_the_critical_chain_is_in_order():
    assert find_critical(DIAMOND, {"a": 1, "b": 2, "c": 5, "d": 1}) == ["a", "c", "d"]
    assert find_critical(DIAMOND, {"a": 1, "b": 7, "c": 5, "d": 1}) == ["a", "b", "d"]


def test_the_critical_chain_follows_ends_not_own_hours():
    graph = {"x": ["slow"], "end": ["x", "y"]}
    assert find_critical(graph, {"slow": 10, "x": 1, "y": 5, "end": 1}) == ["slow", "x", "end"]


def test_ties_are_broken_by_name():
    assert find_critical({"b": [], "a": []}, {"a": 3, "b": 3}) == ["a"]
    assert find_critical({}, {}) == []


def test_affected_tasks():
    assert find_affected(DIAMOND, "a") == ["b", "c", "d"]
    assert find_affected(DIAMOND, "c") == ["d"]
    assert find_affected(DIAMOND, "d") == []
