# SPDX-License-Identifier: Apache-2.0
"""Cheapest ways, and what can be reached."""

import heapq

from gridwalk.grid import Cell, Grid


def find_path(text: str, start: str = "S", end: str = "E") -> list[Cell]:
    """Return the cheapest way as a list of cells, both ends included; empty if there is none."""
    grid = Grid(text)
    first, last = grid.find(start), grid.find(end)
    costs, came_from = {first: 0}, dict[Cell, Cell]()
    queue = [(0, first)]
    while queue:
        cost, cell = heapq.heappop(queue)
        if cost > costs[cell]:
            continue
        for other in grid.neighbours(cell):
            new = cost + grid.cost(other)
            if other not in costs or new < costs[other]:
                costs[other], came_from[other] = new, cell
                heapq.heappush(queue, (new, other))
    if last not in costs:
        return []
    path = [last]
    while path[-1] != first:
        path.append(came_from[path[-1]])
    return path[::-1]


def count_cost(text: str, start: str = "S", end: str = "E") -> int | None:
    """Return what the cheapest way costs; the cell it starts from is free. None if there is no way."""
    path, grid = find_path(text, start, end), Grid(text)
    return sum(map(grid.cost, path[1:])) if path else None


def list_regions(text: str) -> list[int]:
    """Return the sizes of all connected open regions, the largest first."""
    grid, seen, sizes = Grid(text), set[Cell](), list[int]()
    for row, line in enumerate(grid.rows):
        for column in range(len(line)):
            if not grid.is_open((row, column)) or (row, column) in seen:
                continue
            todo, size = [(row, column)], 0
            seen.add((row, column))
            while todo:
                size += 1
                for other in grid.neighbours(todo.pop()):
                    if other not in seen:
                        seen.add(other)
                        todo.append(other)
            sizes.append(size)
    return sorted(sizes, reverse=True)


def draw_path(text: str) -> str:
    """Return the grid with the cells of the cheapest way, but for its ends, as `*`."""
    rows = [list(row) for row in Grid(text).rows]
    for row, column in find_path(text)[1:-1]:
        rows[row][column] = "*"
    return "\n".join("".join(row) for row in rows)
