# SPDX-License-Identifier: Apache-2.0
"""MATH-500: 500 competition problems from the test split of MATH, with answers in LaTeX."""

from pathlib import Path

from benchmarks._loading import hub_rows, write_rows

REPO_ID = "HuggingFaceH4/MATH-500"


def prepare(revision: str | None = None) -> Path:
    """Write the rows."""
    rows = hub_rows(REPO_ID, "test.jsonl", ("problem", "answer", "subject", "level", "unique_id"), revision)
    return write_rows(
        __file__,
        (
            {
                "id": row["unique_id"],
                "question": row["problem"],
                "expected_answer": str(row["answer"]),
                "subject": row["subject"],
                "level": row["level"],
            }
            for row in rows
        ),
    )


if __name__ == "__main__":
    prepare()
