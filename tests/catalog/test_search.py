# SPDX-License-Identifier: Apache-2.0
import pytest

from nemo_gym._catalog.entries import Entry
from nemo_gym._catalog.search import search

AIME = Entry("aime24", "benchmark", None, "math", "Competition problems", facts={"agent_name": "aime_agent"})
CODE = Entry(
    "live_code", "benchmark", None, "coding", "Programs", details={"Dataset": "contest", "Agents": ["x_judge"]}
)


def names(query: str) -> list[str]:
    return [entry.name for entry in search([CODE, AIME], query)]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("AIME", ["aime24"]),
        ("math", ["aime24"]),
        ("competition", ["aime24"]),
        ("aime_agent", ["aime24"]),
        ("contest", ["live_code"]),
        ("judge", ["live_code"]),
        ("compettion", ["aime24"]),
        ("codnig", ["live_code"]),
        ("zzz", []),
    ],
)
def test_a_query_is_part_of_a_field_or_spelt_like_a_word_of_it(query, found):
    assert names(query) == found


def test_names_come_before_other_fields():
    other = Entry("a_first", "benchmark", None, "math", "about aime24")
    assert [entry.name for entry in search([other, AIME], "aime24")] == ["aime24", "a_first"]
