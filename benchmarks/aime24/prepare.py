# SPDX-License-Identifier: Apache-2.0
"""AIME 2024: the 30 problems of the competition, each with a whole number from 0 to 999 as its answer."""

from pathlib import Path

from benchmarks._loading import hub_rows, integer_text, write_rows

REPO_ID = "HuggingFaceH4/aime_2024"


def prepare(revision: str | None = None) -> Path:
    """Write the rows."""
    rows = hub_rows(REPO_ID, "data/train-*.parquet", ("id", "problem", "answer"), revision)
    return write_rows(
        __file__,
        (
            {
                "id": f"aime24-{row['id']}",
                "question": row["problem"],
                "expected_answer": integer_text(row["answer"]),
            }
            for row in rows
        ),
    )


if __name__ == "__main__":
    prepare()
