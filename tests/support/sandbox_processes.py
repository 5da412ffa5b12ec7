# SPDX-License-Identifier: Apache-2.0
"""The processes of sandboxes below this one: find them, wait for them, kill them."""

import asyncio

import psutil

# A program that tells by its name that it runs; a sandbox that only starts has processes, too.
NAME = "sleeps-in-a-box"
SLEEP = f"import ctypes, time; ctypes.CDLL(None).prctl(15, b'{NAME}'); time.sleep"


async def kill_the_sandbox():
    """Kill the sandbox in which a program sleeps, as an operator or the kernel would."""
    for sandbox in await soon(busy_sandboxes):
        sandbox.kill()
        await soon(lambda sandbox=sandbox: not is_alive(sandbox))


def busy_sandboxes():
    """Return those in which a program sleeps."""
    return [sandbox for sandbox in sandboxes() if any(map(sleeps, processes_below(sandbox)))]


def sleeps(process):
    try:
        return process.name() == NAME
    except psutil.NoSuchProcess:
        return False


def processes_below(process):
    try:
        return process.children(recursive=True) if is_alive(process) else []
    except psutil.NoSuchProcess:
        return []


def is_alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def sandboxes():
    return set(psutil.Process().children())


async def soon(look):
    """Return what `look` sees as soon as it sees something."""
    async with asyncio.timeout(300):
        while not (seen := look()):  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.01)
    return seen
