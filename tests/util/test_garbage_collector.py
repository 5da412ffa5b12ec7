# SPDX-License-Identifier: Apache-2.0
"""Work without the search for reference cycles."""

import gc

import pytest

from nemo_gym._util.garbage_collector import pause_garbage_collector


@pause_garbage_collector()
def is_searching():
    return gc.isenabled()


@pause_garbage_collector()
def fail():
    raise KeyError


def test_the_search_rests_meanwhile():
    assert not is_searching()
    assert gc.isenabled()


def test_the_search_goes_on_after_a_failure():
    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()


def test_it_stays_off_where_it_was_off():
    gc.disable()
    try:
        with pause_garbage_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
