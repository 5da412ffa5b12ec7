# SPDX-License-Identifier: Apache-2.0
"""IFEval: prompts with one to three instructions whose following can be checked by a program."""

from pathlib import Path

from benchmarks._loading import Row, UnexpectedData, hub_rows, write_rows

REPO_ID = "google/IFEval"


def prepare(grading_mode: str = "binary", revision: str | None = None) -> Path:
    """Write the rows; with `grading_mode` "fraction", instructions count one by one."""
    if grading_mode not in ("binary", "fraction"):
        raise ValueError(f"grading_mode {grading_mode!r} is neither 'binary' nor 'fraction'")
    columns = ("key", "prompt", "instruction_id_list", "kwargs")
    rows = hub_rows(REPO_ID, "ifeval_input_data.jsonl", columns, revision)
    return write_rows(__file__, (_row(row, grading_mode) for row in rows))


def _row(row: Row, grading_mode: str) -> Row:
    ids = row["instruction_id_list"]
    arguments = row["kwargs"]
    if len(ids) != len(arguments):
        raise UnexpectedData(f"prompt {row['key']!r} has {len(ids)} instructions, but {len(arguments)} kwargs")
    return {
        "id": int(row["key"]),
        "prompt": row["prompt"],
        "verifier_metadata": {
            "instruction_id_list": ids,
            "prompt": row["prompt"],
            "kwargs": [{name: value for name, value in (one or {}).items() if value is not None} for one in arguments],
            "grading_mode": grading_mode,
        },
    }


if __name__ == "__main__":
    prepare()
