# SPDX-License-Identifier: Apache-2.0
"""The example data that a resources server ships: five rows, their metrics and a rollout of each.

Whether the rows are any good for the server is not looked at here; see `contract`.
"""

import json
from pathlib import Path

EXAMPLE_ROWS = 5


def data_problems(folder: Path) -> list[str]:
    """What is wrong with the data of the resources server in `folder`, each with the command that mends it."""
    name, data = folder.name, folder / "data"
    collate = (
        f"hint: gym dataset collate --resources-server {name} --mode example_validation --output-dir results/{name}"
    )
    collect = (
        f"hint: gym eval run --resources-server {name} --model-type openai_model --split example "
        f"--output {data / 'example_rollouts.jsonl'}"
    )
    rows = f"hint: put {EXAMPLE_ROWS} rows into {data / 'example.jsonl'}"
    found = [
        (_row_problem(data / "example.jsonl"), rows),
        (_metrics_problem(data / "example_metrics.json"), collate),
        (_conflict_problem(data), f"{collate}, after deleting the files that are out of date"),
        (_row_problem(data / "example_rollouts.jsonl"), collect),
    ]
    return [f"{problem}\n{hint}" for problem, hint in found if problem]


def _row_problem(path: Path) -> str | None:
    try:
        count = sum(1 for line in path.read_bytes().splitlines() if line.strip())
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return None if count == EXAMPLE_ROWS else f"{path} has {count} rows, not {EXAMPLE_ROWS}"


def _metrics_problem(path: Path) -> str | None:
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    except ValueError as error:
        return f"{path} is not JSON: {error}"
    count = metrics.get("Number of examples") if isinstance(metrics, dict) else None
    return None if count == EXAMPLE_ROWS else f"{path} says {count} examples, not {EXAMPLE_ROWS}"


def _conflict_problem(data: Path) -> str | None:
    conflicts = sorted(path.name for path in data.glob("*conflict*"))
    return f"{data} holds metrics that disagree with their rows: {', '.join(conflicts)}" if conflicts else None
