# SPDX-License-Identifier: Apache-2.0
"""Write training tasks for the environment `workplace_assistant`: office work that takes several tool calls.

python examples/multistep_toolcalling_datagen/generate.py --tasks 1000 --seed 7 --output data/office.jsonl
"""

import argparse
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import nemo_gym  # noqa: F401  # makes the servers importable
from resources_servers.workplace_assistant.generate_data import draw_rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write training tasks for workplace_assistant.")
    parser.add_argument("--tasks", type=int, default=1000, help="how many (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=1, help="a different seed gives different tasks; 0 gives the environment's own"
    )
    parser.add_argument("--min-calls", type=int, default=1, help="skip tasks that take fewer tool calls")
    parser.add_argument("--output", type=Path, required=True, help="the JSONL file to write")
    arguments = parser.parse_args(argv)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    rows = (row for row in draw_rows(arguments.seed) if len(row["ground_truth"]) >= arguments.min_calls)
    with open(arguments.output, "w", encoding="utf-8") as file:
        for row in islice(rows, arguments.tasks):
            file.write(f"{json.dumps(row)}\n")


if __name__ == "__main__":
    main()
