# SPDX-License-Identifier: Apache-2.0
"""End what tests have started, however the run of the tests ends.

Ctrl-C kills the workers of a parallel run, so that no fixture of theirs closes its browser or its servers. All that
descends from the run carries a mark in its environment; a watcher outside of the run ends what still has it afterwards.
The watcher is this file, run as a script.
"""

import contextlib
import os
import subprocess
import sys
import time
import uuid

import psutil

MARK = "NEMO_GYM_TEST_RUN"
_PATIENCE_S = 10.0
"""For what ends by itself when the run does."""
_WATCHERS = list[subprocess.Popen[bytes]]()
"""Kept, since an unreferenced one warns."""


def watch_leftovers() -> None:
    """Mark this process and all that it starts from now on, and end what outlives it.

    A run within a run is watched already.
    """
    if MARK in os.environ:
        return
    mark = uuid.uuid4().hex
    _WATCHERS.append(
        subprocess.Popen(
            [sys.executable, __file__, mark, str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    )
    os.environ[MARK] = mark


def list_marked(mark: str) -> list[psutil.Process]:
    """Return the processes of the run with this mark."""
    marked = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                marked.append(process)
    return marked


def end_leftovers(mark: str) -> None:
    """Wait for a moment, then kill what is left of the run with this mark."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while (left := list_marked(mark)) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    while left:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)
        left = list_marked(mark)


def main(mark: str, run: int) -> None:
    """Wait for the end of the run, which started this process, and end what it left."""
    while os.getppid() == run:
        time.sleep(0.5)
    end_leftovers(mark)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
