# SPDX-License-Identifier: Apache-2.0
"""Which rows are good, and what is said of the others."""

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from nemo_gym._data.create_params import KnownSettings, read_plain_messages
from nemo_gym._data.dataset_rows import BadRow, RowChecker, parse_row
from nemo_gym._wire.schema.responses_request import NeMoGymResponseCreateParamsNonStreaming

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}


def checker():
    return RowChecker(KnownSettings())


def reasons_of(row, check=None):
    with pytest.raises(BadRow) as raised:
        (check or checker()).check(row)
    return raised.value.reasons


def asks(**params):
    return {"responses_create_params": params}


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_messages_of_every_role_are_good(role):
    row, check = asks(input=[{"role": role, "content": "hi"}], tools=[TOOL], temperature=0.5), checker()
    check.check(row)
    check.check(row)  # with settings that are known already


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, "missing (responses_create_params)"),
        ({"responses_create_params": "hi"}, "not an object (responses_create_params)"),
        (asks(), "Field required (responses_create_params.input)"),
        (asks(input="x", top_k=3), "Extra inputs are not permitted (responses_create_params.top_k)"),
        (asks(input="x", stream=True), "Input should be False (responses_create_params.stream)"),
        (
            asks(input=[{"role": "robot", "content": "x"}]),
            "Input should be 'user', 'assistant', 'system' or 'developer' (responses_create_params.input.*.role)",
        ),
        (
            asks(input="x", tools=[{**TOOL, "database": "db"}]),
            "Extra inputs are not permitted (tool 'f') (responses_create_params.tools.*.database)",
        ),
    ],
)
def test_a_bad_row_is_told_by_reason_and_field(row, reason):
    check = checker()
    check.check(asks(input="a good row first"))
    assert reasons_of(row, check) == (reason,)


def test_all_that_is_wrong_with_a_row_is_told():
    assert len(reasons_of(asks(input="x", temperature="hot", seed=1))) == 2


def test_an_input_that_is_neither_text_nor_list_is_told_as_both():
    first, second = reasons_of(asks(input=5), checker())
    assert "valid string" in first
    assert "valid list" in second


def test_settings_known_as_bad_stay_bad():
    check = checker()
    for _ in range(2):
        assert reasons_of(asks(input="x", seed=1), check)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", "not JSON"),
        (b"[1]", "a JSON object is expected, this is a list"),
        (b"null", "a JSON object is expected, this is a null"),
        (b"true", "a JSON object is expected, this is a boolean"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": "\xff"}', "not JSON"),
    ],
)
def test_a_line_that_holds_no_object_is_bad(raw, reason):
    with pytest.raises(BadRow) as raised:
        parse_row(raw)
    assert raised.value.reasons == (reason,)


ROLES = st.sampled_from(["user", "assistant", "system", "developer", "tool", "User", 1, None, []])
ITEMS = st.fixed_dictionaries(
    {"role": ROLES, "content": st.sampled_from(["text", 1, None, [], [{"type": "input_text", "text": "x"}]])},
    optional={"type": st.sampled_from(["message", "reasoning", None]), "name": st.just("n")},
)
INPUTS = st.text(max_size=3) | st.lists(ITEMS | st.just("text"), max_size=3) | st.none()


@settings(max_examples=100, deadline=None)
@given(st.fixed_dictionaries({}, optional={"input": INPUTS, "temperature": st.sampled_from([0.5, "hot"])}))
def test_what_is_taken_without_a_closer_look_is_what_the_schema_takes(params):
    check = checker()
    check.check(asks(input="x", temperature=0.5))
    check.check(asks(input="x"))
    try:
        NeMoGymResponseCreateParamsNonStreaming.model_validate(params)
    except ValidationError:
        assert reasons_of(asks(**params), check)
    else:
        check.check(asks(**params))


def test_settings_have_one_identity_whatever_the_order_of_their_keys():
    known = KnownSettings()
    one, same, other = (
        known.of({"input": "a", "temperature": 1, "tools": [TOOL]}),
        known.of({"tools": [dict(reversed(TOOL.items()))], "input": "b", "temperature": 1}),
        known.of({"temperature": 1.0, "tools": [TOOL]}),
    )
    assert one.identity == same.identity != other.identity
    assert known.of({"temperature": 1, "tools": [TOOL]}) is one


@pytest.mark.parametrize(
    "item",
    [
        *("text", 5, None, True, [], ["role", "content"], {}, {"role": "user"}, {"content": "x"}),
        *({"role": role, "content": "x"} for role in ("robot", None, 1, [], {})),
        *({"role": "user", "content": content} for content in (None, 1, ["x"], {})),
        {"role": "user", "content": "x", "type": "message"},
    ],
)
def test_anything_but_a_role_and_a_text_is_no_plain_message(item):
    good = {"role": "user", "content": "x"}
    assert read_plain_messages([good, good]) == [("user", "x")] * 2
    assert read_plain_messages([good, item]) is None
