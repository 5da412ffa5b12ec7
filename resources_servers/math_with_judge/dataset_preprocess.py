# SPDX-License-Identifier: Apache-2.0
"""Fetch DAPO-Math-17k from the Hugging Face Hub, and write each of its problems once, as a row of this environment."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nemo_gym.errors import GymError
from nemo_gym.hf_utils import load_hub_rows

HERE = Path(__file__).parent
TARGET = HERE / "data" / "dapo17k_bytedtsinghua_train.jsonl"
REPO_ID = "BytedTsinghua-SIA/DAPO-Math-17k"
FILES = "data/*.parquet"
REQUEST = "Reason step by step, and put your final answer in \\boxed{}."


def questions(hub_rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield rows of this environment. On the Hub every problem stands many times, between instructions of its own."""
    seen: set[str] = set()
    for row in hub_rows:
        question = _without_instructions(row["prompt"][-1]["content"])
        if question not in seen:
            seen.add(question)
            asked = f"{question}\n\n{REQUEST}"
            yield {
                "responses_create_params": {"input": [{"role": "user", "content": asked}]},
                "question": question,
                "expected_answer": str(row["reward_model"]["ground_truth"]),
            }


def _without_instructions(prompt: str) -> str:
    """Return the problem alone: its first paragraph says how to answer, and so does its last."""
    paragraphs = prompt.strip().split("\n\n")
    return "\n\n".join(paragraphs[1:-1] if len(paragraphs) > 2 else paragraphs).strip()


def prepare(target: Path = TARGET) -> Path:
    """Write the rows, and say where."""
    lines = [json.dumps(row) for row in questions(load_hub_rows(REPO_ID, FILES))]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(f"{line}\n" for line in lines))
    return target


def main() -> None:
    try:
        prepare()
    except GymError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
