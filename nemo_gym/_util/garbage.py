# SPDX-License-Identifier: Apache-2.0
"""When Python looks for reference cycles: everything that tunes its garbage collector for work that leaves none behind.

The search goes over all that is held again and again: a tenth of the time and more where much is read into memory, or
where many rollouts are under way.
"""

import contextlib
import gc
from collections.abc import Iterator

_RARE_THRESHOLDS = (50_000, 20, 100)


@contextlib.contextmanager
def pause_collections() -> Iterator[None]:
    """Do not search at all, for a short command of our own; whatever becomes a cycle meanwhile is found afterwards."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def collect_rarely() -> Iterator[None]:
    """Search less often, and not among what is there already. For a process of our own, not for a trainer's."""
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
    """Search only after so many new containers, where more than the usual number are held at a time."""
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], containers), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def skip_collection_at_exit() -> None:
    """Spare this process the search among all that is left when it ends: most of a second, for nothing."""
    import atexit

    atexit.register(gc.freeze)
