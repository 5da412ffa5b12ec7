# SPDX-License-Identifier: Apache-2.0
"""How often the 95 % intervals of our metrics contain the truth: `python -m nemo_gym._bench.coverage`.

Tasks are drawn from a population whose mean is known, played, and summarized as a run is; the share of runs whose
interval contains that mean is the coverage. Seeded, so that the same grid gives the same figures.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from nemo_gym._results.metrics.intervals import compute_interval_over_tasks
from nemo_gym._results.metrics.paired_comparison import RunRewards, compare_rewards

TASKS = (3, 5, 10, 20, 30, 100, 500)
REPEATS = (1, 4, 16)
MEANS = (0.5, 0.8, 0.95)
MISSING = 0.2
"""The share of rollouts that fail, in every other column."""
_REWARD_DECIMALS = 6


@dataclass(frozen=True)
class Cell:
    """One population and one size of run."""

    tasks: int
    repeats: int
    mean: float = 0.5
    graded: bool = False
    missing: float = 0.0
    spread: float = 1.0
    """The parameters of the tasks' Beta distribution sum to this: from 0, all or nothing, upwards, all alike."""


def measure_coverage(cell: Cell, runs: int, seed: int = 0) -> float:
    """Return the share of simulated runs whose interval of the mean reward contains the mean of the population."""
    draw = random.Random(f"{seed} {cell}")
    hits = 0
    for _ in range(runs):
        rewards = _play(cell, draw)
        while len(rewards) < 2:  # a run of a single task has no interval
            rewards = _play(cell, draw)
        interval = compute_interval_over_tasks(rewards, binary=not cell.graded)
        if interval.low is not None and interval.high is not None:
            hits += interval.low <= cell.mean <= interval.high
    return hits / runs


def measure_false_alarms(cell: Cell, other_repeats: int, runs: int, seed: int = 0) -> tuple[float, float]:
    """Return how often a comparison of two equal models has p < 0.05, and how often its interval contains 0."""
    draw = random.Random(f"{seed} {cell} {other_repeats}")
    alarms = 0
    hits = 0
    for _ in range(runs):
        skills = [draw.betavariate(*_shape(cell)) for _ in range(cell.tasks)]
        sides = [
            RunRewards(
                "", {t: [float(draw.random() < skill) for _ in range(n)] for t, skill in enumerate(skills)}, {}, n
            )
            for n in (cell.repeats, other_repeats)
        ]
        one = compare_rewards(sides[0], sides[1])
        alarms += one.p_value is not None and one.p_value < 0.05
        hits += one.ci95 is not None and one.ci95[0] <= 0 <= one.ci95[1]
    return alarms / runs, hits / runs


def list_grid() -> Iterator[Cell]:
    """Yield every cell of the grid."""
    for tasks in TASKS:
        for repeats in REPEATS:
            for missing in (0.0, MISSING):
                for mean in MEANS:
                    yield Cell(tasks, repeats, mean, missing=missing)
                yield Cell(tasks, repeats, 0.5, graded=True, missing=missing, spread=4.0)


def _shape(cell: Cell) -> tuple[float, float]:
    return cell.mean * cell.spread, (1 - cell.mean) * cell.spread


def _play(cell: Cell, draw: random.Random) -> list[list[float]]:
    """Return the rewards of the tasks that have a scored rollout."""
    tasks = []
    for _ in range(cell.tasks):
        skill = draw.betavariate(*_shape(cell))
        scored = sum(draw.random() >= cell.missing for _ in range(cell.repeats))
        if cell.graded:
            tasks.append([round(min(max(draw.gauss(skill, 0.2), -1.0), 2.0), _REWARD_DECIMALS) for _ in range(scored)])
        else:
            tasks.append([float(draw.random() < skill) for _ in range(scored)])
    return [rewards for rewards in tasks if rewards]


def main() -> None:
    """Print the coverage of every cell, and the false alarms of comparisons."""
    print("tasks repeats missing | binary, mean", *(f"{mean:5}" for mean in MEANS), "| graded")
    cells = list(list_grid())
    width = len(MEANS) + 1
    for start in range(0, len(cells), width):
        row = cells[start : start + width]
        runs = max(200, min(2000, 60_000 // (row[0].tasks * row[0].repeats)))
        figures = [f"{100 * measure_coverage(cell, runs):5.1f}" for cell in row]
        print(f"{row[0].tasks:5} {row[0].repeats:7} {row[0].missing:7} |             ", *figures[:-1], "|", figures[-1])
    print("tasks repeats | false alarms, and how often the interval of the difference contains 0")
    for tasks in (10, 30, 100):
        for repeats in ((1, 1), (4, 4), (2, 1), (16, 4)):
            rates = [measure_false_alarms(Cell(tasks, repeats[0], mean), repeats[1], 400) for mean in MEANS]
            shown = "  ".join(f"{100 * alarms:4.1f} {100 * hits:5.1f}" for alarms, hits in rates)
            print(f"{tasks:5} {repeats[0]:3}/{repeats[1]:<3} | {shown}")


if __name__ == "__main__":
    main()
