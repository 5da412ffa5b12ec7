# SPDX-License-Identifier: Apache-2.0
"""How many files a process may have open; sockets are files, and a busy server has many."""


def allow_open_files(at_least: int | None = None) -> int | None:
    """Raise this process's own limit to `at_least`, or as far as it may go if that is less or None is given.

    Returns the most that it may allow itself; None if there is no such limit.
    """
    import resource  # not on every platform

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = None if hard == resource.RLIM_INFINITY else hard
    wanted = hard if at_least is None or (most is not None and at_least > most) else at_least
    if soft != resource.RLIM_INFINITY and (wanted == resource.RLIM_INFINITY or soft < wanted):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return most
