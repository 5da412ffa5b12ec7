# SPDX-License-Identifier: Apache-2.0
"""Make rows of `reasoning-gym` tasks, and the example rows: one of each of five tasks.

The first call loads the library, whose version decides which rows a seed gives. `solution` is what a model that knows
the answer would say. `scripts/create_dataset.py` writes more rows.
"""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nemo_gym.errors import GymError

HERE = Path(__file__).parent
SEED = 42
EXAMPLE_TASKS = ("leg_counting", "chain_sum", "letter_counting", "knights_knaves", "mini_sudoku")
Row = dict[str, Any]
SYSTEM = (
    "Think the task through. Then write your final answer, and nothing else, between <answer> and </answer>, in "
    "exactly the form that the task asks for."
)
MIXTURE = "composite"


class UnknownTasks(GymError):
    """The library does not have the requested tasks."""


def list_tasks(category: str | None = None) -> list[str]:
    """Return all tasks, or those of a category, without the mixture."""
    by_category = list_tasks_by_category()
    if category is None:
        return sorted(name for names in by_category.values() for name in names)
    if category not in by_category:
        raise UnknownTasks(f"there is no category {category!r}.\navailable: {', '.join(by_category)}")
    return by_category[category]


def list_tasks_by_category() -> dict[str, list[str]]:
    """Return the tasks by category, which is their subpackage in the library."""
    from reasoning_gym.factory import DATASETS

    found: dict[str, list[str]] = {}
    for name, (dataset, _) in sorted(DATASETS.items()):
        if name != MIXTURE:
            found.setdefault(dataset.__module__.split(".")[1], []).append(name)
    return dict(sorted(found.items()))


def generate(
    tasks: Sequence[str], size: int, seed: int, configs: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[Row]:
    """Yield `size` rows, alternating between the tasks; `configs` has settings by task."""
    from reasoning_gym import create_dataset

    configs = configs or {}
    refuse_unknown([*tasks, *configs])
    rounds = -(-size // len(tasks))
    datasets = [create_dataset(name, **{"size": rounds, "seed": seed, **configs.get(name, {})}) for name in tasks]
    for number in range(size):
        yield make_row(datasets[number % len(tasks)][number // len(tasks)])


def refuse_unknown(tasks: Iterable[str]) -> None:
    """Raise UnknownTasks, with the closest names, if the library does not have all `tasks`."""
    known = list_tasks()
    if unknown := sorted({*tasks} - {*known}):
        close = [match for name in unknown for match in difflib.get_close_matches(name, known, cutoff=0.7)]
        guess = f"Did you mean {' or '.join(map(repr, close))}?" if close else f"\navailable: {', '.join(known)}"
        raise UnknownTasks(f"there is no task {', '.join(map(repr, unknown))}. {guess}")


def make_row(entry: Mapping[str, Any]) -> Row:
    """Return a dataset entry as a row."""
    return {
        "responses_create_params": {
            "input": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": entry["question"]}]
        },
        "question": entry["question"],
        "answer": entry["answer"],
        "metadata": json.loads(json.dumps(entry["metadata"])),
    }


def rows() -> list[dict[str, Any]]:
    """Return the example rows."""
    return list(generate(EXAMPLE_TASKS, len(EXAMPLE_TASKS), SEED))


def solution(row: dict[str, Any]) -> list[str]:
    """Return the turns of a model that solves `row`."""
    return [f"<answer>{row['answer']}</answer>"]


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`."""
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows()), encoding="utf-8")


if __name__ == "__main__":
    write()
