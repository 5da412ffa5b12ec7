# SPDX-License-Identifier: Apache-2.0
"""The numbers of a row."""

from hypothesis import given, settings
from hypothesis.strategies import booleans, dictionaries, floats, integers, lists, none, one_of, sampled_from, text

from nemo_gym._metrics.rollouts import measure
from nemo_gym._results.measure import Measures

VALUES = one_of(none(), booleans(), integers(-5, 5), floats(-1e6, 1e6), text(max_size=2), lists(integers(), max_size=1))
FIELDS = dictionaries(sampled_from(["reward", "right", "_ng_attempt_index", "input_tokens", "note"]), VALUES)
USAGE = one_of(none(), dictionaries(sampled_from(["input_tokens", "total_tokens", "details"]), VALUES))


def test_numbers_are_fields_and_token_counts_without_bookkeeping(result):
    row = result(2, 1, 0.5, right=True, note="x", _ng_attempt_index=1, input_tokens=3, nested={"n": 1})
    assert Measures().of(row) == (("reward", "right", "input_tokens", "output_tokens"), (0.5, 1, 3, 2))


def test_a_bool_becomes_a_number(result):
    _, values = Measures().of(result(0, 0, True))
    assert [type(value) for value in values] == [int, int, int]


@given(lists(FIELDS, min_size=1, max_size=8), lists(USAGE, min_size=1, max_size=3))
@settings(max_examples=100, deadline=None)
def test_numbers_are_those_that_the_metrics_measure_whatever_came_before(rows, usages):
    measures = Measures()
    for index, fields in enumerate(rows):
        row = {**fields, "_ng_task_index": index, "response": {"usage": usages[index % len(usages)]}}
        names, values = measures.of(row)
        # A token count that is a bool is no count.
        usage = {name: value for name, value in (row["response"]["usage"] or {}).items() if type(value) is not bool}
        [measured] = measure([{**row, "response": {"usage": usage}}])
        assert dict(zip(names, values, strict=True)) == measured.fields()


def test_rows_with_the_same_names_share_them(result):
    measures = Measures()
    first, _ = measures.of(result(0, 0, 1.0, note="x"))
    second, _ = measures.of(result(0, 0, 1, note=None, _ng_attempt_index=2))
    assert first is second
