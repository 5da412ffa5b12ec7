# SPDX-License-Identifier: Apache-2.0
"""GSM8K: word problems of grade school mathematics, each with a number as its answer.

The reference solutions, which end in `#### <answer>`, are read for that answer only.
"""

import re
from pathlib import Path

from benchmarks._loading import UnexpectedData, hub_rows, write_rows

REPO_ID = "openai/gsm8k"


def prepare(split: str = "test", revision: str | None = None) -> Path:
    """Write the rows of a split."""
    rows = hub_rows(REPO_ID, f"main/{split}-*.parquet", ("question", "answer"), revision)
    return write_rows(
        __file__,
        (
            {"id": f"{split}-{number}", "question": row["question"], "expected_answer": answer_of(row["answer"])}
            for number, row in enumerate(rows)
        ),
    )


def answer_of(solution: str) -> str:
    """The number at the end of a reference solution, as text."""
    found = re.search(r"####\s*(-?[0-9][0-9,]*(?:\.[0-9]+)?)\s*$", solution)
    if found is None:
        raise UnexpectedData(f"a solution that does not end in `#### <number>`: {solution[-80:]!r}")
    return found[1].replace(",", "")


if __name__ == "__main__":
    prepare()
