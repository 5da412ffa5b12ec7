# SPDX-License-Identifier: Apache-2.0
"""Work without the search for reference cycles."""

import gc

import pytest

from nemo_gym._util.cycles import no_search_for_cycles


@no_search_for_cycles()
def is_searching():
    return gc.isenabled()


@no_search_for_cycles()
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
        with no_search_for_cycles():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
