# SPDX-License-Identifier: Apache-2.0
"""In which order a plan is played."""

import json
import tracemalloc
from itertools import islice

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._rollouts.outcomes import key_of
from nemo_gym._rollouts.resume import read_by_repeat
from nemo_gym._util.jsonl_files import JsonlError, write_rows


def row(key):
    return {"question": "?" * key[0], "_ng_task_index": key[0], "_ng_rollout_index": key[1]}


def played(path):
    return [key_of(each) for each in read_by_repeat(path)]


def test_all_tasks_are_played_once_before_any_is_played_again(tmp_path):
    repeats = {0: 3, 1: 1, 2: 3, 3: 2}
    write_rows(tmp_path / "p", (row((task, rollout)) for task, n in repeats.items() for rollout in range(n)))
    assert played(tmp_path / "p") == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (2, 1), (3, 1), (0, 2), (2, 2)]


@settings(deadline=None, max_examples=40)
@given(keys=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), unique=True), data=st.data())
def test_every_row_of_any_plan_is_played_once_in_order_of_rollout_index(tmp_path_factory, keys, data):
    path = tmp_path_factory.mktemp("plan") / "p"
    rows = [row(key) for key in keys]
    # As other tools may write it: members in another order, spaces, blank lines.
    lines = [json.dumps(dict(data.draw(st.permutations([*each.items()])))) for each in rows]
    path.write_text("".join(f"{line}\n{data.draw(st.sampled_from(['', chr(10)]))}" for line in lines))
    found = [*read_by_repeat(path)]
    assert [key_of(each) for each in found] == sorted(keys, key=lambda key: key[1])
    assert sorted(map(key_of, found)) == sorted(keys)
    assert all(each in rows for each in found)


def test_a_line_that_is_no_row_is_named(tmp_path):
    (tmp_path / "p").write_text('{"_ng_task_index":0,"_ng_rollout_index":1}\nno row\n')
    with pytest.raises(JsonlError, match=r"p:2: not valid JSON"):
        played(tmp_path / "p")


def test_a_large_plan_takes_little_memory(tmp_path):
    tasks, repeats = 2_000, 10
    write_rows(
        tmp_path / "p",
        ({**row((0, rollout)), "_ng_task_index": task} for task in range(tasks) for rollout in range(repeats)),
    )
    tracemalloc.start()
    rows = read_by_repeat(tmp_path / "p")
    assert sum(1 for _ in islice(rows, tasks + 1)) == tasks + 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * tasks + 400_000
