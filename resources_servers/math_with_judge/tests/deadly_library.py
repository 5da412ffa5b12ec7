# SPDX-License-Identifier: Apache-2.0
"""A library that takes its process down on the answer `die`. Small, because worker processes import it."""

import os

from resources_servers.math_with_judge import library


def verdict_on(expected_answer: str, generated_answer: str) -> library.LibraryVerdict:
    if "die" in generated_answer:
        os._exit(3)
    return library.verdict_on(expected_answer, generated_answer)


def verdicts_on(pairs: list[tuple[str, str]]) -> list[library.LibraryVerdict]:
    return [verdict_on(*pair) for pair in pairs]
