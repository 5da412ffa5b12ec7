# SPDX-License-Identifier: Apache-2.0
"""A server of model-written code that attacks it and the sandbox; a script, so that any user can be the server's.

`python contained_attacks.py ISOLATION` writes a line of JSON for each attack. A server that is killed writes no more.
"""

import asyncio
import json
import os
import resource
import sys
import tempfile
from pathlib import Path
from textwrap import dedent

from nemo_gym.code_execution import CodePool

PROJECT = Path(__file__).parents[2]
# The program is told who its server is and where it lies; without a PID namespace it could try all numbers.
TOOLS = """
import ctypes, fcntl, os, platform, resource, signal, subprocess, sys
server, sandbox, project = int(input()), os.getppid(), input()
libc = ctypes.CDLL(None, use_errno=True)
on_arm = platform.machine() == "aarch64"

def tries(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return type(error).__name__
    return "done"

def tries_call(on_x86, on_arm64, *arguments):
    ended = libc.syscall(on_arm64 if on_arm else on_x86, *map(ctypes.c_long, arguments))
    return "done" if ended >= 0 else ctypes.get_errno()
"""

PROBE = """
import ctypes, os, resource
limits = [resource.getrlimit(kind) for kind in range(16)]
scheduling = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))
print(limits, scheduling, ctypes.CDLL(None).syscall(252 if os.uname().machine == "x86_64" else 31, 1, 0))
"""

ATTACKS = {
    "lowers the limits of others": """
        kinds = (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_DATA, resource.RLIMIT_NPROC)
        for pid in (sandbox, server):
            print({tries(resource.prlimit, pid, kind, (9, 9)) for kind in kinds})
    """,
    "slows others down": """
        def lower(kind, which):
            if tries(os.setpriority, kind, which, 19) == "done":
                print("done", kind, which)
        for pid in (sandbox, server):
            lower(os.PRIO_PROCESS, pid)
            lower(os.PRIO_PGRP, os.getpgid(pid)) if pid == sandbox else None
            for name, action in (
                ("affinity", lambda: os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))})),
                ("scheduler", lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))),
                ("parameters", lambda: os.sched_setparam(pid, os.sched_param(0))),
            ):
                if tries(action) == "done":
                    print(name, pid)
            if tries_call(251, 30, 1, pid, 3 << 13) == "done":
                print("ioprio_set", pid)
        lower(os.PRIO_USER, os.getuid())
        lower(os.PRIO_USER, 0)
    """,
    "has the kernel kill others": """
        F_SETOWN_EX, FIOSETOWN, SIOCSPGRP = 15, 0x8901, 0x8902
        for pid in (sandbox, server):
            reading, writing = os.pipe()
            to_process = ctypes.create_string_buffer(bytes(ctypes.c_int(1)) + bytes(ctypes.c_int(pid)))
            print(
                tries(fcntl.fcntl, reading, fcntl.F_SETOWN, pid),
                tries(fcntl.fcntl, reading, F_SETOWN_EX, to_process.raw),
                {tries(fcntl.ioctl, reading, request, ctypes.c_int(pid)) for request in (FIOSETOWN, SIOCSPGRP)},
                tries(fcntl.fcntl, reading, fcntl.F_SETSIG, signal.SIGKILL),
            )
            fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
            os.write(writing, b"x")
    """,
    "makes namespaces": """
        CLONE_NEWUSER = 0x10000000
        def clone(number):
            made = libc.syscall(number, ctypes.c_long(CLONE_NEWUSER | signal.SIGCHLD), 0, 0, 0, 0)
            if made == 0:
                os._exit(0)
            return "done" if made > 0 else ctypes.get_errno()
        print(clone(220 if on_arm else 56), tries_call(272, 97, CLONE_NEWUSER), tries_call(435, 435, 0, 0))
    """,
    "signals the server": """
        for pid in (server, -server):
            print({tries(os.kill, pid, number) for number in (signal.SIGTERM, signal.SIGKILL, 0)})
        print(tries_call(129, 138, server, 9, 0), tries_call(424, 424, 3, 9, 0, 0))
    """,
    "uses the calls of another ABI": """
        print(on_arm or tries_call(0x40000000 | 39, 0), on_arm or tries_call(0x40000000 | 302, 0, server, 7, 0, 0))
    """,
    "holds a file of its user back": """
        import of_the_user
        file = os.open(of_the_user.__file__, os.O_RDONLY)
        print(tries(fcntl.fcntl, file, fcntl.F_SETLEASE, fcntl.F_RDLCK))
    """,
    "looks for files of the project": """
        found = []
        for parent, folders, names in os.walk(project):
            if parent in (sys.base_prefix, *sys.path):
                folders.clear()
            else:
                found += [os.path.join(parent, name) for name in names]
        print(found[:9])
    """,
    "looks at its folder": """
        print(oct(os.stat(os.getcwd()).st_mode & 0o7777), os.getcwd())
    """,
    "manages itself": """
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 64))
        resource.prlimit(0, resource.RLIMIT_CPU, (5, 5))
        os.nice(1)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.prlimit(os.getpid(), resource.RLIMIT_CPU))
        print(subprocess.run(["sh", "-c", "ulimit -n 16; ulimit -n"], capture_output=True, text=True).stdout.strip())
    """,
    "ends a process of its own": """
        child = subprocess.Popen(["sleep", "60"])
        child.kill()
        print(child.wait())
    """,
}


def state() -> list[object]:
    """Return what an attack could have changed of this process, the server."""
    limits = [resource.getrlimit(kind) for kind in range(16)]
    return [*limits, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0), os.sched_getscheduler(0)]


async def attack(isolation: str, import_paths: list[str]) -> None:
    async with CodePool(workers=1, isolation=isolation, import_paths=import_paths) as pool:
        for name, program in ATTACKS.items():
            before, own = (await pool.run(PROBE)).stdout, state()
            result = await pool.run(TOOLS + dedent(program), stdin=f"{os.getpid()}\n{PROJECT}")
            after = await pool.run(PROBE)
            told = {"status": result.status, "said": result.stdout.strip(), "error": result.stderr}
            kept = {"program": after.stdout == before, "server": state() == own}
            print(json.dumps({"name": name, **told, "kept": kept, "probes": [before, after.stdout]}), flush=True)


def main(isolation: str) -> None:
    packages = [path for path in sys.path if path.endswith("site-packages")]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        Path(folder, "of_the_user.py").touch()
        asyncio.run(attack(isolation, [folder, *packages]))


if __name__ == "__main__":
    main(sys.argv[1])
