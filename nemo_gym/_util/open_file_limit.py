# SPDX-License-Identifier: Apache-2.0
"""The limit on open files of this process. Sockets count as files, and a busy server has many."""


def allow_open_files(at_least: int | None = None) -> int | None:
    """Raise the soft limit to `at_least`, or to the hard limit if that is lower or None is given.

    Return the hard limit; None if there is none.
    """
    import resource  # not on every platform

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = None if hard == resource.RLIM_INFINITY else hard
    wanted = hard
    if at_least is not None and (most is None or at_least <= most):
        wanted = at_least
    if soft != resource.RLIM_INFINITY and (wanted == resource.RLIM_INFINITY or soft < wanted):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return most
