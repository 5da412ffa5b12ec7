# SPDX-License-Identifier: Apache-2.0
"""Small files of the shape that the data sets of the benchmarks have on the Hub, in words of our own.

Each sample says where a file is, what it holds, and for each of its rows a reply that is right and one that is wrong.
"""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow
import pyarrow.parquet

Row = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """A file on the Hub, and replies to the rows that are made of it."""

    repo_id: str
    path: str
    rows: list[Row]
    right: list[str]
    wrong: list[str]
    others: Mapping[str, bytes] = field(default_factory=dict)
    """Further files of the repository, which are not to be read."""

    def files(self) -> dict[str, bytes]:
        return {**self.others, self.path: encoded(self.path, self.rows)}


def encoded(path: str, rows: list[Row]) -> bytes:
    """Rows as a file of the kind that the name says."""
    if path.endswith(".parquet"):
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), buffer)
        return buffer.getvalue()
    if path.endswith(".csv"):
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def boxed(*answers: str) -> list[str]:
    return [rf"Let us see. It is \boxed{{{answer}}}." for answer in answers]


def program(source: str) -> str:
    return f"Here it is:\n```python\n{source}\n```"


GSM8K = Sample(
    "openai/gsm8k",
    "main/test-00000-of-00001.parquet",
    [
        {"question": "Ada has 3 bags of 4 nuts. How many nuts?", "answer": "3 * 4 = <<3*4=12>>12\n#### 12"},
        {"question": "A mill grinds 530 kg a day. How much in 4 days?", "answer": "4 * 530 = 2120 kg\n#### 2,120"},
        {"question": "A well is 2 m deep, its floor at -2. What is 3 m below?", "answer": "-2 - 3 = -5\n#### -5"},
    ],
    boxed("12", "2{,}120", "-5"),
    boxed("13", "212", "5"),
    {"socratic/test-00000-of-00001.parquet": b"not read", "main/train-00000-of-00001.parquet": b"not read"},
)
AIME24 = Sample(
    "HuggingFaceH4/aime_2024",
    "data/train-00000-of-00001.parquet",
    [
        {"id": 60, "problem": "Find $5^2$.", "solution": "…", "answer": "025", "url": "", "year": "2024"},
        {"id": 61, "problem": "Find $2^2$.", "solution": "…", "answer": "004", "url": "", "year": "2024"},
    ],
    boxed("25", "4"),
    boxed("52", "40"),
)
AIME25 = Sample(
    "math-ai/aime25",
    "test.jsonl",
    [
        {"problem": "Find the sum of the bases.", "answer": "70", "id": "0"},
        {"problem": "Find the angle.", "answer": "336^\\circ", "id": "1"},
    ],
    boxed("70", "336"),
    boxed("07", "24"),
)
MATH_500 = Sample(
    "HuggingFaceH4/MATH-500",
    "test.jsonl",
    [
        {
            "problem": "Write $0.75$ as a fraction.",
            "solution": "…",
            "answer": "\\frac{3}{4}",
            "subject": "Prealgebra",
            "level": 1,
            "unique_id": "test/prealgebra/1.json",
        },
        {
            "problem": "Where does $y = x + 2$ meet $x = 1$?",
            "solution": "…",
            "answer": "(1, 3)",
            "subject": "Algebra",
            "level": 2,
            "unique_id": "test/algebra/2.json",
        },
    ],
    boxed(r"\dfrac{6}{8}", r"\left(1,3\right)"),
    boxed(r"\frac{4}{3}", "(3, 1)"),
)
GPQA = Sample(
    "Idavidrein/gpqa",
    "gpqa_diamond.csv",
    [
        {
            "Record ID": f"rec{number}",
            "Question": question,
            "Correct Answer": right,
            "Incorrect Answer 1": f"{wrong} once\n",
            "Incorrect Answer 2": f"{wrong}, twice",
            "Incorrect Answer 3": f"{wrong} thrice",
            "High-level domain": "Physics",
            "Subdomain": "Optics",
        }
        for number, (question, right, wrong) in enumerate(
            [("What bends light?", "a lens\n", "a wall"), ('What is "red"?', "a colour", "a sound")]
        )
    ],
    [],
    [],
    {"gpqa_main.csv": b"not read"},
)
MMLU_PRO = Sample(
    "TIGER-Lab/MMLU-Pro",
    "data/test-00000-of-00001.parquet",
    [
        {
            "question_id": 70,
            "question": "What is 2 + 2?",
            "options": [str(number) for number in range(10)],
            "answer": "E",
            "answer_index": 4,
            "cot_content": "",
            "category": "math",
            "src": "ours",
        },
        {
            "question_id": 71,
            "question": "Which one is a gas?",
            "options": ["iron", "argon", "N/A"],
            "answer": "B",
            "answer_index": 1,
            "cot_content": "",
            "category": "chemistry",
            "src": "ours",
        },
    ],
    boxed("E", "B"),
    boxed("F", "C"),
    {"data/validation-00000-of-00001.parquet": b"not read"},
)
IFEVAL = Sample(
    "google/IFEval",
    "ifeval_input_data.jsonl",
    [
        {
            "key": 1000,
            "prompt": "Describe {a} sea in lower case. No commas.",
            "instruction_id_list": ["change_case:english_lowercase", "punctuation:no_comma"],
            "kwargs": [{}, {"num_words": None}],
        },
        {
            "key": 1001,
            "prompt": "Name the sea at least twice.",
            "instruction_id_list": ["keywords:frequency"],
            "kwargs": [{"relation": "at least", "keyword": "sea", "frequency": 2}],
        },
    ],
    ["the sea is wide", "The sea, the sea!"],
    ["The sea, which is wide", "The sea!"],
)
HUMAN_EVAL = Sample(
    "openai/openai_humaneval",
    "openai_humaneval/test-00000-of-00001.parquet",
    [
        {
            "task_id": "HumanEval/900",
            "prompt": 'from typing import List\n\n\ndef halves(xs: List[float]) -> List[float]:\n    """Halve."""\n',
            "canonical_solution": "    return [x / 2 for x in xs]\n",
            "test": "\n\nMETADATA = {}\n\n\ndef check(candidate):\n    assert candidate([1.0]) == [0.5]\n"
            "    for n in range(3):\n        assert abs(candidate([n])[0] - n / 2) < 1e-6, 'close'\n",
            "entry_point": "halves",
        },
        {
            "task_id": "HumanEval/901",
            "prompt": "def shifted(text: str):\n    return text[1:] + text[:1]\n\n\n"
            'def back(text: str):\n    """\n    Undo `shifted`.\n    """\n',
            "canonical_solution": "    return text[-1:] + text[:-1]\n",
            "test": "def check(candidate):\n    assert candidate(shifted('abc')) == 'abc'\n"
            "    assert candidate('') == ''\n    assert (1, 2) != [1, 2]\n",
            "entry_point": "back",
        },
    ],
    [
        program("def halves(xs: List[float]) -> List[float]:\n    return [x / 2 for x in xs]"),
        program("def back(text):\n    return text[-1:] + text[:-1]"),
    ],
    [program("def halves(xs):\n    return [x // 2 for x in xs]"), program("def back(text):\n    return shifted(text)")],
)
MBPP = Sample(
    "google-research-datasets/mbpp",
    "full/test-00000-of-00001.parquet",
    [
        {
            "task_id": 11,
            "text": "Write a function to swap the two parts of a pair.",
            "code": "def swap(pair):\r\n  return pair[1], pair[0]",
            "test_list": ["assert swap((1, 2)) == (2, 1)", "assert swap(('a', None)) == (None, 'a')"],
            "test_setup_code": "",
            "challenge_test_list": [],
        },
        {
            "task_id": 12,
            "text": "Write a function to sum up a tree.",
            "code": "def total(node):\r\n  return node.value + sum(map(total, node.below))",
            "test_list": ["assert total(tree) == 6\r\n", "assert total(Node(1)) == 1"],
            "test_setup_code": "class Node:\r\n    def __init__(self, value, *below):\r\n"
            "        self.value, self.below = value, below\r\ntree = Node(1, Node(2), Node(3))",
            "challenge_test_list": [],
        },
    ],
    [
        program("def swap(pair):\n    return pair[1], pair[0]"),
        program("def total(node):\n    return node.value + sum(map(total, node.below))"),
    ],
    [program("def swap(pair):\n    return [pair[1], pair[0]]"), program("def total(node):\n    return node.value")],
    {"sanitized/test-00000-of-00001.parquet": b"not read"},
)
SAMPLES = {
    "gsm8k": GSM8K,
    "aime24": AIME24,
    "aime25": AIME25,
    "math-500": MATH_500,
    "gpqa": GPQA,
    "mmlu_pro": MMLU_PRO,
    "ifeval": IFEVAL,
    "human_eval": HUMAN_EVAL,
    "mbpp": MBPP,
}
