# SPDX-License-Identifier: Apache-2.0
"""The process above the trusted one, where there is no PID namespace: when that one is killed, it kills all the rest.

A kernel ends the children of a process with it, if they asked for that, but not their children. These come to the
keeper. The other way round, the trusted process ends with its keeper, and takes everything with it.
"""

import contextlib
import os
import signal
from types import FrameType

from nemo_gym._execution.inside.containment import Rules, adopt_orphans, kill_all, remove_folders
from nemo_gym._execution.inside.kernel_rules import PR_SET_DUMPABLE, PR_SET_PDEATHSIG, prctl
from nemo_gym._execution.inside.watching import ServerGone

KEEPER_DIED = signal.SIGUSR1
STDERR = 2


def fork_below_keeper(rules: Rules) -> None:
    """Go on in a new process; this one stays behind as its keeper, and ends when the new one has."""
    prctl(PR_SET_DUMPABLE, 0)
    adopt_orphans()
    own_pid = os.getpid()
    below = os.fork()
    if below != 0:
        _keep(below, rules)
    signal.signal(KEEPER_DIED, _end_without_keeper)
    prctl(PR_SET_PDEATHSIG, KEEPER_DIED)
    if os.getppid() != own_pid:
        raise SystemExit("the keeper of this sandbox was killed")


def forget_keeper() -> None:
    """End undisturbed, whatever happens to the keeper."""
    signal.signal(KEEPER_DIED, signal.SIG_IGN)


def _keep(below: int, rules: Rules) -> None:
    """Wait for the end of the trusted process, and leave nothing of what it watched over."""
    try:
        os.closerange(0, STDERR)
        os.closerange(STDERR + 1, 1 << 16)
        with contextlib.suppress(InterruptedError):
            signal.signal(signal.SIGTERM, _end_by_order)
            while os.waitpid(-1, 0)[0] != below:
                pass
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        kill_all(rules)
        with contextlib.suppress(FileNotFoundError):  # as a rule the trusted process has removed them
            remove_folders(rules)
    finally:
        os._exit(0)


def _end_by_order(number: int, frame: FrameType | None) -> None:
    raise InterruptedError


def _end_without_keeper(number: int, frame: FrameType | None) -> None:
    raise ServerGone
