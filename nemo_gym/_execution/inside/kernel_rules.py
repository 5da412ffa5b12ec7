# SPDX-License-Identifier: Apache-2.0
"""How a process gives rights up, for itself and all it starts."""

import ctypes
import errno
import itertools
import os
import resource
import struct

from nemo_gym._execution.inside.file_rules import FileRules, obey
from nemo_gym._execution.inside.syscall_filter import filter_calls

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 36, 38
_CAPABILITIES_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def seal(file_rules: FileRules | None, *, has_own_pids: bool) -> None:
    """Obey rules for files and a filter on system calls; without PIDs of its own, leave processes of others alone."""
    if file_rules is not None:
        obey(file_rules)
    keeps_signals = has_own_pids or (file_rules is not None and file_rules.scope_signals)
    if not filter_calls(own_signals_only=not keeps_signals) and not has_own_pids:
        raise OSError(errno.ENOSYS, "there is no filter on system calls, which alone keeps code from the network here")


def drop_capabilities() -> None:
    """As root: keep the files of root and none of its power over the machine."""
    for capability in itertools.count():
        if _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    if _libc.capset(struct.pack("Ii", _CAPABILITIES_VERSION_3, 0), bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def become(uid: int | None, gid: int | None) -> None:
    """Become another user and nobody else's group; None stays who we are."""
    if uid is not None and gid is not None:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


def limit(kind: int, value: int) -> None:
    """Take a limit on, or the lower one that there is."""
    hard = resource.getrlimit(kind)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def prctl(option: int, value: int) -> None:
    """Set a property of this process."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")
