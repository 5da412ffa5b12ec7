# SPDX-License-Identifier: Apache-2.0
"""A server with local sandboxes, whose commands attack it: `python local_sandbox_attacks.py SETTINGS [no-landlock]`.

A script, so that any user can be the server's. It writes a line of JSON: what each command printed, or why there is no
sandbox. `no-landlock` makes the kernel one that does not know Landlock.
"""

import asyncio
import ctypes
import errno
import json
import os
import resource
import socket
import sys
import tempfile
from pathlib import Path

from nemo_gym._isolation.inside import kernel_rules
from nemo_gym.sandbox import AsyncSandbox, SandboxCreateError, SandboxSpec

LANDLOCK_CREATE_RULESET = 444
CONNECT = "import socket; print(socket.create_connection(('127.0.0.1', {port})))"
UNIX = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('{folder}/socket'); print('connected')"
LIMIT = "import resource; print(resource.prlimit({server}, resource.RLIMIT_NOFILE, (9, 9)))"
ATTACKS = {
    "reads a key": "cat {folder}/.ssh/id_ed25519",
    "lists the home folder": "ls -A {folder}",
    "reads a key through a link": "ln -s {folder}/.ssh/id_ed25519 link; cat link",
    "writes into the home folder": "echo x > {folder}/new && echo written",
    "calls loopback": f'python3 -c "{CONNECT}"',
    "calls loopback from the shell": "exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected",
    "calls a socket of the machine": f'python3 -c "{UNIX}"',
    "reads the server's environment": "tr '\\0' '\\n' < /proc/{server}/environ | grep SECRET_OF_THE_TEST",
    "reads the server's command line": "tr '\\0' ' ' < /proc/{server}/cmdline",
    "signals the server": "kill -0 {server} && echo reached",
    "lowers the server's limits": f'python3 -c "{LIMIT}"',
    "opens a user namespace": "unshare --user echo opened",
    "makes a device": "mknod disk b 8 0 && echo made",
}
WORK = {
    "ends its own process": "sleep 60 & kill $!; wait $!; echo $?",
    "limits the time of its own process": "timeout 0.05 sleep 60; echo $?",
    "uses pipes and files": "seq 3 > file; cat <(sort -r file) | tr '\\n' ' '; rm file; ls -A",
    "uses Python": "python3 -c 'import difflib, os, subprocess as s; print(s.getoutput(\"echo\"), os.cpu_count() > 0)'",
    "closes its folders": "stat -c %a . $TMPDIR",
}


def forget_landlock() -> None:
    missing = kernel_rules._for_call(LANDLOCK_CREATE_RULESET, [kernel_rules._refuse(errno.ENOSYS)])
    code = b"".join([kernel_rules._step(kernel_rules._LOAD, 0), *missing, kernel_rules._ACCEPT])
    program = kernel_rules._Program(len(code) // 8, code)
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0


async def attack(settings: dict[str, object], places: dict[str, object]) -> dict[str, object]:
    try:
        box = await AsyncSandbox({"local": settings}, SandboxSpec()).start()
    except SandboxCreateError as error:
        return {"refused": str(error)}
    async with box:
        said = {name: (await box.exec(command.format(**places))).stdout for name, command in ATTACKS.items()}
        done = {name: (await box.exec(command)).stdout for name, command in WORK.items()}
        root = oct(os.stat(box.handle.raw.root).st_mode & 0o777)
        return {"isolation": box.handle.raw.isolation, "attacks": said, "work": done, "root": root}


def main(settings: str, *options: str) -> None:
    if "no-landlock" in options:
        forget_landlock()
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as tcp:
        home = Path(folder)
        home.chmod(0o755)
        (home / ".ssh").mkdir()
        (home / ".ssh" / "id_ed25519").write_text("the key")
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(str(home / "socket"))
        (home / "socket").chmod(0o777)
        unix.listen()
        places = {"folder": folder, "port": tcp.getsockname()[1], "server": os.getpid()}
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        told = asyncio.run(attack(json.loads(settings), places))
        unix.close()
        told["kept"] = resource.getrlimit(resource.RLIMIT_NOFILE) == before and not (home / "new").exists()
        print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
