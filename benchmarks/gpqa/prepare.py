# SPDX-License-Identifier: Apache-2.0
"""GPQA: graduate-level science questions with four options, in an order that the seed and the question decide.

The data set is gated. Its authors ask not to publish its questions, so no example of it is part of this package.
"""

import random
from pathlib import Path

from benchmarks._loading import LETTERS, Row, hub_rows, lettered, listed, write_rows
from nemo_gym.hf_utils import HubError

REPO_ID = "Idavidrein/gpqa"
SUBSETS = ("diamond", "main", "extended")
RIGHT = "Correct Answer"
WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
COLUMNS = ("Record ID", "Question", RIGHT, *WRONG, "High-level domain", "Subdomain")


def prepare(subset: str = "diamond", seed: int = 0, revision: str | None = None) -> Path:
    """Write the rows of a subset."""
    if subset not in SUBSETS:
        raise ValueError(f"subset {subset!r} is none of {', '.join(SUBSETS)}")
    try:
        rows = hub_rows(REPO_ID, f"gpqa_{subset}.csv", COLUMNS, revision)
    except HubError as error:
        raise HubError(
            f"{error}\nnote: {REPO_ID!r} is gated. Accept its conditions at https://huggingface.co/datasets/{REPO_ID}, "
            "then give a token: the environment variable HF_TOKEN, or `hf_token` in env.yaml"
        ) from error
    return write_rows(__file__, (_row(row, seed) for row in rows))


def _row(row: Row, seed: int) -> Row:
    right = str(row[RIGHT]).strip()
    texts = [right, *(str(row[column]).strip() for column in WRONG)]
    # Each question has an order of its own, which stays the same if others are added.
    order = random.Random(f"{seed} {row['Record ID']}").sample(range(len(texts)), len(texts))
    options = lettered(texts[place] for place in order)
    return {
        "question": str(row["Question"]).strip(),
        "listed_options": listed(options),
        "options": options,
        "expected_answer": LETTERS[order.index(0)],
        "grading_mode": "strict_single_letter_boxed",
        "uuid": str(row["Record ID"]),
        "metadata": {"domain": row["High-level domain"], "subdomain": row["Subdomain"]},
    }


if __name__ == "__main__":
    prepare()
