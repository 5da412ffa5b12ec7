# SPDX-License-Identifier: Apache-2.0
"""The order in which tasks can be done."""

Graph = dict[str, list[str]]


def list_tasks(graph: Graph) -> list[str]:
    """Return all tasks by name, those that are only named as a dependency too."""
    return sorted({*graph, *(name for names in graph.values() for name in names)})


def sort_tasks(graph: Graph) -> list[str]:
    """Return the tasks in an order that respects all dependencies; of those that are free, the first by name."""
    waiting = {name: set(graph.get(name, ())) for name in list_tasks(graph)}
    ordered: list[str] = []
    while waiting:
        free = min((name for name, before in waiting.items() if not before), default=None)
        if free is None:
            raise ValueError(f"these tasks wait for each other: {', '.join(sorted(waiting))}")
        ordered.append(free)
        del waiting[free]
        for before in waiting.values():
            before.discard(free)
    return ordered


def find_needed(graph: Graph, task: str) -> list[str]:
    """Return all that must be done before `task`, directly or not, by name."""
    found: set[str] = set()
    todo = [task]
    while todo:
        for name in graph.get(todo.pop(), ()):
            if name not in found:
                found.add(name)
                todo.append(name)
    return sorted(found)
