# SPDX-License-Identifier: Apache-2.0
"""What tests give to CPU workers to do; a small module, because the workers import it."""

import os
import signal
import sys
import time


def double(number):
    return 2 * number


def where():
    return os.getpid()


def modules():
    return set(sys.modules)


def hang():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def meet(folder, name, other):
    """Return once `other` has come too: only calls that run at the same time ever do."""
    (folder / name).touch()
    while not (folder / other).exists():
        time.sleep(0.001)
    return os.getpid()


def nap_in(folder):
    (folder / str(os.getpid())).touch()
    time.sleep(60)


def crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def fail(message):
    raise ValueError(message)


class Awkward(Exception):
    def __init__(self, first, second):
        super().__init__(first)


def fail_awkwardly():
    raise Awkward(1, 2)


def unsendable():
    return lambda: None
