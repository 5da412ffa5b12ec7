# SPDX-License-Identifier: Apache-2.0
"""The first thing that runs in a server process: tie its life to its parent's, then run the entrypoint as a script.

    python -m nemo_gym._serving.child app.py

The parent holds the other end of a pipe. When the parent is gone, however it went, the pipe closes and this process
ends together with everything it started, also while the entrypoint is still being imported.
"""

import os
import runpy
import signal
import sys
import threading
from collections.abc import MutableMapping
from pathlib import Path

LIFELINE_FD = "NEMO_GYM_LIFELINE_FD"
READY_FD = "NEMO_GYM_READY_FD"
LISTEN_FD = "NEMO_GYM_LISTEN_FD"


def take_fd(environment: MutableMapping[str, str], name: str) -> int | None:
    """The file descriptor that the parent passed under `name`, once: grandchildren must not take it for theirs."""
    given = environment.pop(name, None)
    return int(given) if given else None


def end_with_parent(lifeline: int) -> None:
    """End this process group as soon as the parent's end of the pipe closes."""

    def wait() -> None:
        os.read(lifeline, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def say_ready(ready: int) -> None:
    """Tell the parent that this server listens."""
    os.write(ready, b"1")
    os.close(ready)


def main() -> None:
    """Run the entrypoint named on the command line, in whose folder this process was started."""
    lifeline = take_fd(os.environ, LIFELINE_FD)
    if lifeline is not None:
        end_with_parent(lifeline)
    entrypoint = Path(sys.argv[1]).absolute()
    sys.argv[:] = [str(entrypoint), *sys.argv[2:]]
    sys.path.insert(0, str(entrypoint.parent))
    runpy.run_path(str(entrypoint), run_name="__main__")


if __name__ == "__main__":
    main()
