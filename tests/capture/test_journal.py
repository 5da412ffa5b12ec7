# SPDX-License-Identifier: Apache-2.0
"""Append-only JSONL: lines survive concurrent writers and a torn tail."""

import fcntl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym._capture.journal import append_object, read_objects


def test_a_missing_file_is_an_empty_journal(tmp_path: Path):
    assert read_objects(tmp_path / "none.jsonl").objects == []


def test_folders_are_created_on_the_first_append(tmp_path: Path):
    append_object(tmp_path / "a" / "b.jsonl", {"n": 1})
    assert read_objects(tmp_path / "a" / "b.jsonl").objects == [{"n": 1}]


def test_a_torn_last_line_is_counted_and_does_not_swallow_the_next_append(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    append_object(path, {"n": 1})
    path.write_bytes(path.read_bytes() + b'{"n": 2, "text": "cut of')
    assert read_objects(path).objects == [{"n": 1}]
    append_object(path, {"n": 3})
    lines = read_objects(path)
    assert (lines.objects, lines.unreadable) == ([{"n": 1}, {"n": 3}], [2])


def test_a_line_that_is_json_but_no_object_is_unreadable(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'[1]\n\n{"n": 1}\n')
    lines = read_objects(path)
    assert (lines.objects, lines.unreadable) == ([{"n": 1}], [1])


@settings(max_examples=50, deadline=None)
@given(texts=st.lists(st.text(), max_size=5))
def test_any_text_comes_back_as_it_was(tmp_path_factory, texts: list[str]):
    path = tmp_path_factory.mktemp("journal") / "x.jsonl"
    for text in texts:
        append_object(path, {"text": text})
    assert [value["text"] for value in read_objects(path).objects] == texts


def test_a_line_goes_to_the_file_that_is_there_although_the_one_it_waited_for_is_gone(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    append_object(path, {"n": 1})
    with path.open() as held, ThreadPoolExecutor() as threads:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = threads.submit(append_object, path, {"n": 2})
        path.unlink()
        fcntl.flock(held, fcntl.LOCK_UN)
        waiting.result(30)
    assert read_objects(path).objects == [{"n": 2}]


def test_readers_wait_for_the_writer(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    append_object(path, {"n": 1})
    with path.open("ab") as writer, ThreadPoolExecutor() as threads:
        fcntl.flock(writer, fcntl.LOCK_EX)
        reading = threads.submit(read_objects, path)
        writer.write(b'{"n": 2}\n')
        writer.flush()
        assert not reading.done()
        fcntl.flock(writer, fcntl.LOCK_UN)
        assert reading.result(30).objects == [{"n": 1}, {"n": 2}]
