# SPDX-License-Identifier: Apache-2.0
"""When tasks begin and end, if all that can is done at the same time."""

from taskgraph.order import Graph, find_needed, sort_tasks


def plan_starts(graph: Graph, hours: dict[str, int]) -> dict[str, int]:
    """Return when each task can begin: once the last task that it waits for has ended."""
    starts: dict[str, int] = {}
    for task in sort_tasks(graph):
        starts[task] = max((starts[name] + hours.get(name, 0) for name in graph.get(task, ())), default=0)
    return starts


def count_hours(graph: Graph, hours: dict[str, int]) -> int:
    """Return how long everything takes."""
    starts = plan_starts(graph, hours)
    return max((start + hours.get(task, 0) for task, start in starts.items()), default=0)


def find_critical(graph: Graph, hours: dict[str, int]) -> list[str]:
    """Return a chain of tasks, in order, none of which may be late; of several, the first by name of the later task."""
    starts = plan_starts(graph, hours)
    ends = {task: start + hours.get(task, 0) for task, start in starts.items()}
    if not ends:
        return []
    task = min(ends, key=lambda name: (-ends[name], name))
    chain = [task]
    while graph.get(task):
        task = min(graph[task], key=lambda name: (-ends[name], name))
        chain.append(task)
    return chain[::-1]


def find_affected(graph: Graph, task: str) -> list[str]:
    """Return the tasks that must wait for `task`, directly or not, by name."""
    return sorted(other for other in graph if task in find_needed(graph, other))
