# SPDX-License-Identifier: Apache-2.0
"""Write rows of `reasoning-gym` tasks to a JSONL file.

python resources_servers/reasoning_gym/scripts/create_dataset.py --category logic --size 200 --output logic.jsonl
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nemo_gym.errors import GymError
from resources_servers.reasoning_gym.generate_data import generate, list_tasks, list_tasks_by_category


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the rows; return 2 on an error."""
    given = _make_parser().parse_args(arguments)
    try:
        if given.list:
            for category, names in list_tasks_by_category().items():
                print(f"{category}: {', '.join(names)}")
            return 0
        tasks = _choose_tasks(given)
        count = _write(Path(given.output), tasks, given.size, given.seed, _read_configs(given.config, tasks))
    except (GymError, ValueError, TypeError, AssertionError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    print(f"Wrote {given.output}: {count} rows of {len(tasks)} task{'s' if len(tasks) > 1 else ''}")
    return 0


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Write rows of reasoning-gym tasks to a JSONL file.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--task", help="one task")
    which.add_argument("--tasks", help="several tasks, separated by commas")
    which.add_argument("--category", help="all tasks in a category, such as logic")
    which.add_argument("--all-tasks", action="store_true", help="all tasks")
    which.add_argument("--list", action="store_true", help="list the tasks by category, and write nothing")
    parser.add_argument("--size", type=int, default=500, help="total number of rows; tasks alternate (default: 500)")
    parser.add_argument("--seed", type=int, default=42, help="(default: 42)")
    parser.add_argument("--config", default="{}", help="settings of the task as JSON; for several tasks, by name")
    parser.add_argument("--output", default="data/train.jsonl", help="the file to write (default: data/train.jsonl)")
    return parser


def _choose_tasks(given: argparse.Namespace) -> list[str]:
    if given.size < 1:
        raise ValueError(f"--size must be at least 1, not {given.size}")
    if given.task:
        return [given.task]
    if given.tasks:
        return [name.strip() for name in given.tasks.split(",") if name.strip()]
    return list_tasks(given.category)


def _read_configs(text: str, tasks: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the settings of each task."""
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ValueError(f"--config is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise ValueError("--config must be a JSON object")
    if len(tasks) == 1 and set(config) != set(tasks):
        return {tasks[0]: config}
    if not all(isinstance(value, dict) for value in config.values()):
        raise ValueError('for several tasks, --config has settings by name: \'{"maze": {"min_dist": 3}}\'')
    return config


def _write(path: Path, tasks: list[str], size: int, seed: int, configs: dict[str, Mapping[str, Any]]) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    count = 0
    try:
        with partial.open("w", encoding="utf-8") as file:
            for row in generate(tasks, size, seed, configs):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                count += 1
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


if __name__ == "__main__":
    raise SystemExit(main())
