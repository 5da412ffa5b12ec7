# SPDX-License-Identifier: Apache-2.0
"""Copies of wire models are as shallow and as separate as pydantic's own."""

import copy

from pydantic import BaseModel

from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.testing import asked, reply


def test_a_copy_is_equal_shares_its_values_and_keeps_what_was_set():
    params, response = asked("hi", temperature=0.5), reply("hello", vendor_field=[1])
    for made in (params, response, *response.output):
        ours, theirs = copy.copy(made), BaseModel.__copy__(made)
        assert ours == theirs == made
        assert type(ours) is type(made)
        assert ours.model_fields_set == made.model_fields_set
        assert ours.model_extra == made.model_extra
        assert all(getattr(ours, name) is getattr(made, name) for name in type(made).model_fields)


def test_a_change_to_a_copy_stays_there():
    params, response = asked("hi"), reply("hello", vendor_field=1)
    other: NeMoGymResponseCreateParamsNonStreaming = params.model_copy(update={"temperature": 1.0})
    another: NeMoGymResponse = response.model_copy()
    another.vendor_field, another.user = 2, "me"
    assert (params.temperature, other.temperature) == (None, 1.0)
    assert "temperature" not in params.model_fields_set
    assert (response.vendor_field, response.user) == (1, None)
    assert "user" not in response.model_fields_set
