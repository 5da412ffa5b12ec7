# SPDX-License-Identifier: Apache-2.0
import pytest
from fastapi import Response
from hypothesis import given, strategies as st

from nemo_gym._servers.policy_versions.marks import describe_versions, mark_answer, read_described_versions
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.testing import message, reply
from nemo_gym.token_id_capture.records import read_token_entries
from nemo_gym.trajectories import TrainableRollout

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.1]}


def answer(*parts):
    return NeMoGymResponse.model_validate({**reply().model_dump(), "output": list(parts)})


def said(text, **fields):
    return {**message(text).model_dump(), **fields}


@pytest.mark.parametrize("as_json", [False, True])
def test_an_answer_is_marked_and_the_object_that_was_given_stays_as_it_is(as_json):
    given = answer(said("a"), said("b", **TOKENS))
    given = given.model_dump() if as_json else given
    before = dict(given) if as_json else given.model_dump()
    marked = mark_answer(given, 7, 7)
    plain = marked if as_json else marked.model_dump()
    assert (given if as_json else given.model_dump()) == before
    assert plain["policy_version"] == 7
    assert "policy_version_end" not in plain
    assert ["policy_version" in item for item in plain["output"]] == [False, True]


def test_an_answer_without_version_and_what_is_no_answer_are_returned_as_they_are():
    given, finished = answer(said("a")), Response(b"ready")
    assert mark_answer(given, None, 7) is given
    assert mark_answer(finished, 7, 7) is finished


def test_captured_tokens_keep_the_version_of_their_call():
    marked = mark_answer(answer(said("a", **TOKENS)), 7, 9)
    (entry,) = read_token_entries(marked, "0-0", "call")
    row = {"reward": 1.0, "_ng_token_capture": {"records": [entry.model_dump(exclude_none=True)]}}
    (turn,) = TrainableRollout.from_row(row).turns
    assert (turn.policy_version, turn.policy_version_end) == (7, 9)


versions = st.one_of(st.none(), st.integers(0, 5))


@given(turns=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=4), began=versions, ended=versions)
def test_a_row_tells_the_first_and_the_last_version_of_its_turns(turns, began, ended):
    parts = [mark_answer(answer(said("a", **TOKENS)), *turn).output[0] for turn in turns]
    described = describe_versions(answer(*parts), began, ended)
    if turns:
        seen = {version for turn in turns for version in turn}
        assert described == {"start": turns[0][0], "end": turns[-1][1], "straddles": len(seen) > 1}
        assert read_described_versions(described) == (turns[0][0], turns[-1][1])
    elif began is None and ended is None:
        assert described is None
    else:
        assert described == {"start": began, "end": ended, "straddles": began != ended}


def test_an_answer_without_tokens_still_tells_when_its_last_call_was_made():
    assert describe_versions(mark_answer(answer(said("a")), 7, 7), 6, 8)["end"] == 7


@pytest.mark.parametrize("odd", [None, 7, {}, {"start": "7", "end": 7}, {"start": 7}])
def test_what_is_no_description_tells_nothing(odd):
    assert read_described_versions(odd) is None
