# SPDX-License-Identifier: Apache-2.0
"""Write the rows of this environment, deterministically.

Difficulties alternate, so that the first few rows are a fair sample. A row names its task and holds the users' bug
report; everything else stays on the server. `solution` plays a model that knows the correct code, and `find_flaws`
checks that the hidden tests tell the correct code from the broken one.

    python -m resources_servers.workspace_tasks.generate_data [--check]
"""

import asyncio
import itertools
import json
import random
import sys
from pathlib import Path
from typing import Any

from nemo_gym.code_execution import CodePool
from resources_servers.workspace_tasks.hidden_testing import run_hidden_tests
from resources_servers.workspace_tasks.tampering import is_test
from resources_servers.workspace_tasks.tasks import Task, load_tasks

HERE = Path(__file__).parent
SEED = 0
EXAMPLE_ROWS = 5
DIFFICULTIES = ("easy", "medium", "hard")
PROMPT = """The Python repository in your workspace has a bug. This is what its users report:

{report}

Find the cause and repair it in the source code. Keep to what the docstrings say; other behaviour must stay as it is. \
Do not change the tests that are there. `python3 -m unittest` in the workspace runs them; further tests, which you \
do not see, will decide."""
PATH = {"path": {"type": "string", "description": "A path such as `package/module.py`."}}
CONTENT = {"content": {"type": "string", "description": "All that the file is to hold."}}


def all_rows() -> list[dict[str, Any]]:
    """Return all rows, with alternating difficulties."""
    draw = random.Random(SEED)
    by_difficulty = []
    for difficulty in DIFFICULTIES:
        tasks = [task for task in load_tasks().values() if task.difficulty == difficulty]
        by_difficulty.append(draw.sample(tasks, len(tasks)))
    return [_build_row(task) for turn in itertools.zip_longest(*by_difficulty) for task in turn if task is not None]


def rows() -> list[dict[str, Any]]:
    """Return the example rows: some of every difficulty."""
    return all_rows()[:EXAMPLE_ROWS]


def solution(row: dict[str, Any]) -> list[tuple[str, dict[str, Any]] | str]:
    """Return the turns of a model that solves `row`: tool calls, then its final message."""
    gold = load_tasks()[row["task_id"]].gold
    written = [("write_file", {"path": name, "content": text}) for name, text in gold.items()]
    return [("list_files", {}), *(("read_file", {"path": name}) for name in gold), *written, "It is repaired."]


def _build_row(task: Task) -> dict[str, Any]:
    return {
        "responses_create_params": {
            "input": [{"role": "user", "content": PROMPT.format(report=task.report.strip())}],
            "tools": [
                _build_tool("list_files", "List the files of the repository.", {}),
                _build_tool("read_file", "Return what is in a file.", PATH),
                _build_tool("write_file", "Write a whole file.", {**PATH, **CONTENT}),
            ],
        },
        "task_id": task.id,
        "difficulty": task.difficulty,
    }


def _build_tool(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": True}


async def find_flaws(tasks: list[Task]) -> list[str]:
    """Return the flaws of the tasks: hidden tests that all pass with the bug, or fail without it."""
    pool = CodePool()
    flaws = list[str]()
    try:
        for task in tasks:
            broken = {name: text for name, text in task.files.items() if not is_test(name)}
            for label, files, must_pass in (("bug", broken, False), ("gold", {**broken, **task.gold}, True)):
                verdict = await run_hidden_tests(pool, task.tests, files, timeout_s=10)
                if bool(verdict.failed) is must_pass or verdict.tampering:
                    flaws.append(f"{task.id} ({label}): {verdict.failed or 'all pass'} {verdict.tampering}")
                if not must_pass and not verdict.passed:
                    flaws.append(f"{task.id} ({label}): no hidden test passes")
    finally:
        await pool.aclose()
    return flaws


def write(path: Path = HERE / "data" / "example.jsonl") -> None:
    """Write the example rows to `path`."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows()))


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit("\n".join(asyncio.run(find_flaws(list(load_tasks().values())))) or 0)
    write()
