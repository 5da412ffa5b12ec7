# SPDX-License-Identifier: Apache-2.0
"""When two items of a conversation are the same."""

import pytest

from nemo_gym.item_forms import make_form


def call(arguments: str) -> dict[str, str]:
    return {"type": "function_call", "call_id": "c", "name": "add", "arguments": arguments}


@pytest.mark.parametrize("arguments", ['{"a": 1, "b": [2]}', '{"b":[2],"a":1}', '{\n  "a": 1,\n  "b": [2]\n}'])
def test_a_call_is_the_same_however_a_framework_writes_its_arguments_again(arguments):
    assert make_form(call(arguments)) == make_form(call('{"a":1,"b":[2]}'))


def test_calls_with_other_arguments_are_others():
    assert len({make_form(call(text)) for text in ('{"a":1}', '{"a":2}', '{"a":"1"}', '{"a":', "", "null")}) == 6
