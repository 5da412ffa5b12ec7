# SPDX-License-Identifier: Apache-2.0
"""Grids such as:

    S..#
    .#.E

`#` is a wall, a digit is what it costs to enter, anything else costs 1.
"""

Cell = tuple[int, int]
STEPS = ((-1, 0), (0, -1), (0, 1), (1, 0))


class Grid:
    """A grid; cells are pairs of row and column."""

    def __init__(self, text: str) -> None:
        self.rows = [line for line in text.split("\n") if line]
        if len({len(row) for row in self.rows}) > 1:
            raise ValueError("the rows of a grid must be equally long")

    def find(self, char: str) -> Cell:
        """Return the first cell that holds a character."""
        for number, row in enumerate(self.rows):
            if char in row:
                return (number, row.index(char))
        raise LookupError(f"there is no {char!r} in the grid")

    def is_open(self, cell: Cell) -> bool:
        """Tell whether a cell is in the grid and no wall."""
        row, column = cell
        return 0 <= row < len(self.rows) and 0 <= column < len(self.rows[row]) and self.rows[row][column] != "#"

    def cost(self, cell: Cell) -> int:
        """Return what it costs to enter a cell."""
        char = self.rows[cell[0]][cell[1]]
        return int(char) if char.isdigit() else 1

    def neighbours(self, cell: Cell) -> list[Cell]:
        """Return the open cells beside a cell, in reading order."""
        around = [(cell[0] + down, cell[1] + right) for down, right in STEPS]
        return [one for one in around if self.is_open(one)]
