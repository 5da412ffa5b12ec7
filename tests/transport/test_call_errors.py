# SPDX-License-Identifier: Apache-2.0
import pickle

import aiohttp
import pytest

from nemo_gym._transport.call_errors import (
    InvalidServerReply,
    ServerDeadlineExceeded,
    ServerResponseError,
    ServerUnreachable,
)
from nemo_gym.errors import ServerCallError

ERRORS = [
    ServerResponseError("POST", "http://a/b", 503, "Busy", b"body"),
    ServerUnreachable("GET", "http://a/b", "refused", 3),
    ServerDeadlineExceeded("POST", "http://a/b", 1.5),
    InvalidServerReply("POST", "http://a/b", 200, "text/html", b"<html>", "not JSON"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_errors_survive_pickling_whole(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (copy.args, str(copy), copy.url) == (error.args, str(error), "http://a/b")


@pytest.mark.parametrize(
    ("error", "known_as"),
    list(
        zip(ERRORS, [aiohttp.ClientResponseError, aiohttp.ClientConnectionError, TimeoutError, ValueError], strict=True)
    ),
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_errors_are_caught_by_who_expects_the_librarys_own(error, known_as):
    assert isinstance(error, known_as)
    assert isinstance(error, ServerCallError)


def test_a_long_body_is_cut_in_the_message_and_whole_in_the_attribute():
    error = ServerResponseError("POST", "http://a/b", 500, "", b"x" * 100_000)
    assert len(str(error)) < 3000
    assert "100000 bytes" in str(error)
    assert len(error.response_content) == 100_000


def test_a_reply_that_is_html_is_shown_by_its_beginning():
    text = str(InvalidServerReply("POST", "http://a/b", 200, "text/html", b"<html>oops</html>", "unexpected character"))
    assert "text/html" in text
    assert "<html>oops" in text
