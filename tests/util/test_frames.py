# SPDX-License-Identifier: Apache-2.0
"""Frames arrive whole and in order, however the stream is cut."""

from hypothesis import given, strategies as st

from nemo_gym._util.frames import FrameSplitter, build_frame


@given(st.lists(st.binary(max_size=20), max_size=10), st.integers(1, 30))
def test_frames_arrive_in_order_however_the_stream_is_cut(contents, piece):
    stream = b"".join(map(build_frame, contents))
    splitter = FrameSplitter()
    arrived = []
    for start in range(0, len(stream), piece):
        arrived += map(bytes, splitter.feed(stream[start : start + piece]))
    assert arrived == contents


def test_the_parts_of_a_frame_are_one_content():
    assert [bytes(content) for content in FrameSplitter().feed(build_frame(b"ab", b"", b"c"))] == [b"abc"]


def test_a_frame_that_is_not_complete_is_kept_back():
    splitter = FrameSplitter()
    assert list(splitter.feed(build_frame(b"abc")[:-1])) == []
    assert list(splitter.feed(b"c")) == [b"abc"]
