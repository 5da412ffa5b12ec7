# SPDX-License-Identifier: Apache-2.0
"""What others see of this process's command line in `ps` and `/proc/<pid>/cmdline`: everything but its secrets."""

from pathlib import Path

from nemo_gym._util.secret_names import mask_arguments

# Fields of /proc/<pid>/stat, counted from the one behind the name of the program: see proc_pid_stat(5).
_ARG_START = 45
_ARG_END = 46


def hide_secret_arguments() -> None:
    """Overwrite the secrets on this process's own command line, which every user of the machine can read.

    `sys.argv` is a copy and keeps them. On systems without `/proc` nothing happens.
    """
    try:
        shown = Path("/proc/self/cmdline").read_bytes()
        words = [word.decode("utf-8", "surrogateescape") for word in shown.removesuffix(b"\0").split(b"\0")]
        masked = mask_arguments(words)
        if masked == words:
            return
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return
    start = int(fields[_ARG_START])
    end = int(fields[_ARG_END])
    if end - start != len(shown):  # somebody else has set a title already
        return
    import ctypes  # only here, where it is needed

    text = "\0".join(masked).encode("utf-8", "surrogateescape")
    # The last byte stays 0: else the system would go on reading where the environment begins.
    ctypes.memmove(start, text[: len(shown) - 1].ljust(len(shown), b"\0"), len(shown))
