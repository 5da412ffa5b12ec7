# SPDX-License-Identifier: Apache-2.0
"""Tune Python's garbage collector for work that leaves no reference cycles behind.

Its search visits every object that is held, again and again, which takes a tenth of the time or more when much is read
into memory or many rollouts are running.
"""

import contextlib
import gc
from collections.abc import Iterator

_RARE_THRESHOLDS = (50_000, 20, 100)


@contextlib.contextmanager
def pause_collections() -> Iterator[None]:
    """Do not search during the block, for a short command; cycles that appear meanwhile are found afterwards."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def collect_rarely() -> Iterator[None]:
    """Search less often, and not among existing objects. For a process of our own, not for a trainer's."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_RARE_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextlib.contextmanager
def collect_once_in(containers: int) -> Iterator[None]:
    """Search only after so many new containers, for a block that holds more of them than usual."""
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], containers), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def skip_collection_at_exit() -> None:
    """Skip the search when this process ends, which would take most of a second for nothing."""
    import atexit

    atexit.register(gc.freeze)
