# SPDX-License-Identifier: Apache-2.0
"""A table of answers and the verdicts on them. It needs nothing but the library, so that any version can be tried."""

from pathlib import Path

from resources_servers.math_with_judge.library import verdict_on

TABLE = Path(__file__).with_name("answer_pairs.txt")


def read_table() -> list[tuple[str, str, str]]:
    lines = [line for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    return [(expected, answer, verdict) for expected, answer, verdict in (line.split(" | ") for line in lines)]


def find_wrong_verdicts() -> list[tuple[str, str, str]]:
    return [
        (expected, answer, verdict)
        for expected, answer, verdict in read_table()
        if verdict_on(expected, rf"So it is $\boxed{{{answer}}}$.").is_equal != (verdict == "=")
    ]


if __name__ == "__main__":
    wrong = find_wrong_verdicts()
    assert not wrong, wrong
