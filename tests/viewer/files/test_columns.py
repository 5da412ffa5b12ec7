# SPDX-License-Identifier: Apache-2.0
import io

import orjson
from hypothesis import given, settings, strategies as st

from nemo_gym._viewer.files import columns as columns_module
from nemo_gym._viewer.files.columns import Scanner

_LINES = st.lists(
    st.one_of(
        st.builds(
            lambda task, reward, text: orjson.dumps({"_ng_task_index": task, "reward": reward, "é": text}),
            st.integers(0, 9),
            st.floats(0, 1),
            st.text(max_size=30),
        ),
        st.sampled_from([b"", b"  ", b"{", b"[1]", b'{"a": \xff}', b"\x00\x00", b'{"reward": NaN}']),
    ),
    max_size=12,
)


def whole(data: bytes) -> Scanner:
    scanner = Scanner()
    while not scanner.advance(io.BytesIO(data), 1 << 20):
        pass
    return scanner


def plainly(data: bytes) -> list[tuple[int, bytes]]:
    """Offset and content of every line that holds an object, read the slow and obvious way."""
    found, offset = [], 0
    for line in data.split(b"\n"):
        if line.startswith(b'{"') and line.endswith(b"}") and b"\xff" not in line:
            found.append((offset, line))
        offset += len(line) + 1
    return found


def places(scanner: Scanner, data: bytes) -> list[tuple[int, bytes]]:
    columns = scanner.columns
    return [(start, data[start : start + columns.size[row]].rstrip(b"\n")) for row, start in enumerate(columns.offset)]


@settings(max_examples=40, deadline=None)
@given(_LINES, st.booleans())
def test_every_good_line_is_found_where_it_lies(lines, ends_with_newline):
    data = b"\n".join(lines) + (b"\n" if ends_with_newline else b"")
    scanner = whole(data)
    assert places(scanner, data) == plainly(data)
    assert scanner.columns.n_rows == len(plainly(data))


@settings(max_examples=40, deadline=None)
@given(_LINES, st.integers(1, 200), st.lists(st.integers(0, 400), max_size=5))
def test_reading_in_pieces_while_the_file_grows_gives_the_same(lines, budget, cuts):
    data = b"\n".join(lines) + b"\n"
    scanner = Scanner()
    for size in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        while not scanner.advance(io.BytesIO(data[:size]), budget):
            pass
    at_once = whole(data)
    assert places(scanner, data) == places(at_once, data)
    assert scanner.list_problems() == at_once.list_problems()
    assert list(scanner.columns.reward) == list(at_once.columns.reward) or any(b"NaN" in line for line in lines)


def test_broken_lines_are_listed_with_their_reason():
    scanner = whole(b'{"a":1}\n{"a":\n\n[1]\n{"a":2}\n')
    assert [one.line for one in scanner.list_problems()] == [2, 4]
    assert scanner.torn is None
    assert "JSON" in scanner.problems[0].reason
    assert "a JSON object is expected, this is a list" in scanner.problems[1].reason
    assert scanner.columns.n_rows == 2


def test_a_torn_last_line_is_taken_up_once_it_is_whole():
    scanner = Scanner()
    assert scanner.advance(io.BytesIO(b'{"a":1}\n{"b"'), 1 << 20)
    assert scanner.torn is not None
    assert (scanner.torn.line, scanner.torn.reason, scanner.n_problems) == (2, "the last line was cut off", 0)
    assert scanner.advance(io.BytesIO(b'{"a":1}\n{"b":2}\n'), 1 << 20)
    assert scanner.torn is None
    assert scanner.columns.n_rows == 2


def test_only_so_many_problems_are_kept_but_all_are_counted(monkeypatch):
    monkeypatch.setattr(columns_module, "MOST_PROBLEMS", 3)
    scanner = whole(b"x\n" * 10)
    assert len(scanner.problems) == 3
    assert scanner.n_problems == 10


def test_a_line_beyond_all_bounds_is_passed_over(monkeypatch):
    monkeypatch.setattr(columns_module, "LONGEST_LINE", 100)
    scanner = whole(b'{"a":1}\n{"long":"' + b"x" * 500 + b'"}\n{"b":2}\n')
    assert scanner.columns.n_rows == 2
    assert scanner.problems[0].line == 2
    assert "longer than 100 bytes" in scanner.problems[0].reason


def test_a_file_is_what_most_of_its_rows_are():
    assert whole(b'{"_ng_failure_class":"x"}\n{"reward":1}\n{"reward":0}\n').kind == "rollouts"
    assert whole(b"").kind == "other"


def test_fields_that_appear_late_are_empty_before():
    columns = whole(b'{"reward":1}\n{"reward":1,"overlap":0.5}\n{"reward":0}\n').columns
    assert [value == value for value in columns.fields["overlap"]] == [False, True, False]


def test_there_is_room_for_eight_fields_and_the_others_are_named():
    row = orjson.dumps({f"field{number}": number for number in range(10)})
    columns = whole(row + b"\n").columns
    assert len(columns.fields) == 8
    assert list(columns.more_fields) == ["field8", "field9"]
