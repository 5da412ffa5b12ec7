# SPDX-License-Identifier: Apache-2.0
"""The first thing that runs in a server process: tie its life to its parent's, then run the entrypoint as a script.

    python -m nemo_gym._serving.child app.py

The parent holds the other end of a pipe. When the parent is gone, however it went, the pipe closes and this process
ends together with everything it started, also while the entrypoint is still being imported.
"""

import contextlib
import os
import runpy
import select
import signal
import sys
import threading
from collections.abc import MutableMapping
from pathlib import Path
from typing import TextIO, cast

from nemo_gym._serving.entrypoint import note_missing_module
from nemo_gym._util.known_secrets import MaskedStream
from nemo_gym.errors import GymError

LIFELINE_FD = "NEMO_GYM_LIFELINE_FD"
READY_FD = "NEMO_GYM_READY_FD"
LISTEN_FD = "NEMO_GYM_LISTEN_FD"

_INTERRUPTED = 130


def take_fd(environment: MutableMapping[str, str], name: str) -> int | None:
    """The file descriptor that the parent passed under `name`, once: grandchildren must not take it for theirs."""
    given = environment.pop(name, None)
    if not given:
        return None
    os.set_inheritable(int(given), False)
    return int(given)


def end_with_parent(lifeline: int) -> None:
    """End this process and all it started as soon as the parent is gone."""
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    # A process that the parent forked holds the parent's end of the pipe too, and may outlive it.
    with contextlib.suppress(OSError, AttributeError):  # not on every system
        poll.register(os.pidfd_open(os.getppid()), select.POLLIN)

    def wait() -> None:
        poll.poll()
        end_everything()

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def end_everything() -> None:
    """Kill this process group, and before it what has left the group to lead one of its own."""
    import psutil  # 20 ms, and only needed at the end

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()
    os.killpg(os.getpgrp(), signal.SIGKILL)


def say_ready(ready: int) -> None:
    """Tell the parent that this server listens."""
    os.write(ready, b"1")
    os.close(ready)


def main() -> None:
    """Run the entrypoint named on the command line, in whose folder this process was started."""
    sys.stderr = cast("TextIO", MaskedStream(sys.stderr))
    lifeline = take_fd(os.environ, LIFELINE_FD)
    if lifeline is not None:
        end_with_parent(lifeline)
    entrypoint = Path(sys.argv[1]).absolute()
    sys.argv[:] = [str(entrypoint), *sys.argv[2:]]
    sys.path.insert(0, str(entrypoint.parent))
    try:
        runpy.run_path(str(entrypoint), run_name="__main__")
    except KeyboardInterrupt:  # stopped while starting: a traceback would only look like a fault of the server
        sys.exit(_INTERRUPTED)
    except GymError as error:
        sys.exit(str(error))
    except ModuleNotFoundError as error:
        note_missing_module(error, entrypoint.parent)
        raise


if __name__ == "__main__":
    main()
