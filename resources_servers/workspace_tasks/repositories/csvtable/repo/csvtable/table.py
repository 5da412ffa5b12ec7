# SPDX-License-Identifier: Apache-2.0
"""Rows with named columns."""

from csvtable.reader import read_rows


def parse(text: str) -> list[dict[str, str]]:
    """Return one dict per row; the first line names the columns. Missing fields at the end of a row are empty."""
    lines = read_rows(text)
    if not lines:
        return []
    names, *rows = lines
    names = [name.strip() for name in names]
    if len(set(names)) != len(names):
        raise ValueError("two columns have the same name")
    table = []
    for number, row in enumerate(rows, start=2):
        if len(row) > len(names):
            raise ValueError(f"line {number} has {len(row)} fields for {len(names)} columns")
        table.append(dict(zip(names, row + [""] * (len(names) - len(row)), strict=True)))
    return table


def total(table: list[dict[str, str]], column: str) -> float:
    """Return the sum of a column; empty fields do not count."""
    return sum(float(row[column]) for row in table if row[column].strip())


def group_totals(table: list[dict[str, str]], by: str, column: str) -> dict[str, float]:
    """Return the sum of `column` for each value of the column `by`, in the order in which values appear."""
    groups: dict[str, list[dict[str, str]]] = {}
    for row in table:
        groups.setdefault(row[by], []).append(row)
    return {value: total(rows, column) for value, rows in groups.items()}


def join(left: list[dict[str, str]], right: list[dict[str, str]], on: str) -> list[dict[str, str]]:
    """Return every pair of rows with the same value of `on`; columns of `left` win."""
    matches: dict[str, list[dict[str, str]]] = {}
    for row in right:
        matches.setdefault(row[on], []).append(row)
    return [{**other, **row} for row in left for other in matches.get(row[on], [])]
