# SPDX-License-Identifier: Apache-2.0
"""Work with fewer searches for reference cycles, or with none."""

import gc

import pytest

from nemo_gym._util.garbage import collect_once_in, collect_rarely, pause_collections


@pause_collections()
def is_searching():
    return gc.isenabled()


@pause_collections()
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
        with pause_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.usefixtures("freezing_gc")
def test_a_process_that_collects_rarely_gets_its_settings_back():
    gc.unfreeze()  # whatever ran before in this process
    before = gc.get_threshold(), gc.get_freeze_count()
    with collect_rarely():
        assert gc.get_threshold() != before[0]
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


def test_many_containers_are_made_between_two_searches_unless_there_are_more_already():
    before = gc.get_threshold()
    with collect_once_in(70_000):
        assert gc.get_threshold()[0] == 70_000
        with collect_once_in(10):
            assert gc.get_threshold()[0] == 70_000
    assert gc.get_threshold() == before
