# SPDX-License-Identifier: Apache-2.0
"""MMLU-Pro: questions from 14 fields with up to ten options."""

from pathlib import Path

from benchmarks._loading import LETTERS, Row, UnexpectedData, hub_rows, lettered, listed, write_rows

REPO_ID = "TIGER-Lab/MMLU-Pro"
COLUMNS = ("question_id", "question", "options", "answer", "answer_index", "category")
NO_OPTION = "N/A"


def prepare(split: str = "test", category: str | None = None, revision: str | None = None) -> Path:
    """Write the rows of a split, or those of one category of it."""
    rows = hub_rows(REPO_ID, f"data/{split}-*.parquet", COLUMNS, revision)
    if category is not None:
        known = sorted({row["category"] for row in rows})
        rows = [row for row in rows if row["category"] == category]
        if not rows:
            raise ValueError(f"category {category!r} is none of {', '.join(known)}")
    return write_rows(__file__, map(_row, rows))


def _row(row: Row) -> Row:
    if LETTERS[row["answer_index"]] != row["answer"]:
        raise UnexpectedData(
            f"question {row['question_id']!r}: the answer is {row['answer']!r}, but has index {row['answer_index']}"
        )
    # Letters are kept as they are, and an option that is not there is none.
    options = [option for option in lettered(row["options"]) if NO_OPTION not in option.values()]
    return {
        "question": row["question"].strip(),
        "listed_options": listed(options),
        "options": options,
        "expected_answer": row["answer"],
        "grading_mode": "strict_single_letter_boxed",
        "uuid": str(row["question_id"]),
        "metadata": {"category": row["category"]},
    }


if __name__ == "__main__":
    prepare()
