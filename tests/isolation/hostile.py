# SPDX-License-Identifier: Apache-2.0
"""Programs that try to get out, to stay, or to take what is not theirs, and how each of them should end."""

from dataclasses import dataclass
from textwrap import dedent

TRIES = """
import os

def tries(action):
    try:
        action()
    except (OSError, ValueError) as error:
        return type(error).__name__
    return "done"
"""


@dataclass(frozen=True)
class Attack:
    """A program, the ways in which it may end, and what it prints if it was contained."""

    name: str
    program: str
    statuses: frozenset[str] = frozenset({"ok"})
    says: str | None = None

    @property
    def source(self) -> str:
        return TRIES + dedent(self.program)


def ends(*statuses: str) -> frozenset[str]:
    return frozenset(statuses)


BOMBS = [
    Attack("fork bomb", "while True: os.fork()", ends("error", "killed", "timeout", "memory")),
    Attack("fork bomb that does not give up", "while True: tries(os.fork)", ends("killed", "timeout", "memory")),
    Attack(
        "thread bomb",
        """
        import threading, time
        while True:
            threading.Thread(target=time.sleep, args=(60,)).start()
        """,
        ends("error", "killed", "timeout"),
    ),
    Attack("memory bomb", "held = []\nwhile True: held.append(bytearray(10_000_000))", ends("memory")),
    Attack("one huge allocation", "bytearray(1 << 40)", ends("memory")),
    Attack(
        "memory bomb of several processes",
        """
        import time
        for _ in range(4):
            os.fork()
        held = bytearray(b"x" * 60_000_000)
        time.sleep(60)
        """,
        ends("memory"),
    ),
    Attack(
        "memory bomb in shared memory",
        """
        import mmap
        held = [mmap.mmap(-1, 1 << 28) for _ in range(8)]
        for pages in held:
            for at in range(0, 1 << 28, 4096):
                pages[at] = 1
        """,
        ends("memory", "error", "killed"),
    ),
    Attack("endless output", "while True: print('x' * 1000)", ends("output")),
    Attack("endless complaints", "import sys\nwhile True: sys.stderr.write('x' * 1000)", ends("output")),
    Attack("endless output past Python", "while True: os.write(1, b'x' * 65536)", ends("output")),
    Attack("endless reports", "while True: os.write(3, b'x' * 65536)", ends("output")),
    Attack("endless loop", "while True: pass", ends("timeout")),
    Attack("endless sleep", "import time\ntime.sleep(3600)", ends("timeout")),
    Attack(
        "endless recursion",
        """
        import sys
        sys.setrecursionlimit(10**9)
        def again():
            again()
        again()
        """,
        ends("memory", "error", "killed", "timeout"),
    ),
    Attack("a source that no parser likes", "(" * 100_000, ends("error", "memory", "killed")),
    Attack("a source of zeros", "\0" * 1000, ends("error")),
    Attack("filling the disk", "big = open('big', 'wb')\nwhile True: big.write(b'x' * (1 << 20))", ends("error")),
]

ESCAPES = [
    Attack(
        "opening a socket",
        """
        import socket
        families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
        print({tries(lambda: socket.socket(family)) for family in families})
        """,
        says="{'PermissionError'}",
    ),
    Attack(
        "killing whoever can be reached",
        """
        import signal
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGTERM):
            for pid in (os.getppid(), 1):
                tries(lambda: os.kill(pid, number))
        print("still here")
        """,
        says="still here",
    ),
    Attack(
        "reading the environment, its own and others'",
        """
        found = set()
        for pid in (os.getppid(), *range(1, 1000)):
            try:
                found.add(b"SECRET_OF_THE_TEST" in open(f"/proc/{pid}/environ", "rb").read())
            except OSError:
                pass
        print(True in found, "SECRET_OF_THE_TEST" in os.environ)
        """,
        says="False False",
    ),
    Attack(
        "reading the home folder",
        # And wherever else a project may lie: of it, code sees only the packages that it may import.
        """
        import pwd, sys
        found = []
        for home in (pwd.getpwuid(0).pw_dir, "/home", "/srv", "/var", "/boot", "/run"):
            for parent, folders, names in os.walk(home):
                if parent == sys.base_prefix or parent in sys.path:
                    folders.clear()
                else:
                    found += [os.path.join(parent, name) for name in names]
        print(found[:9])
        """,
        says="[]",
    ),
    Attack(
        "looking into the parent",
        """
        parent = f"/proc/{os.getppid()}"
        print({tries(lambda: open(f"{parent}/{name}", "rb").read(1)) for name in ("mem", "environ", "maps")})
        print(tries(lambda: os.listdir(f"{parent}/fd")))
        """,
        says="{'PermissionError'}\nPermissionError",
    ),
    Attack(
        "tracing the parent, and new namespaces",
        """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        print(libc.ptrace(16, os.getppid(), 0, 0), libc.unshare(0x10000000), libc.mount(b"x", b"/tmp", b"tmpfs", 0, 0))
        """,
        says="-1 -1 -1",
    ),
    Attack(
        "writing outside",
        """
        places = ("/", "/usr", "/etc", "/dev", "/root", "/home", "/var/tmp", "/proc/sys/kernel", "/opt")
        print([place for place in places if tries(lambda: open(f"{place}/hostile", "w")) == "done"])
        """,
        says="[]",
    ),
]

TRACES = [
    Attack(
        "signals ignored",
        """
        import signal
        for number in signal.valid_signals():
            tries(lambda: signal.signal(number, signal.SIG_IGN))
        while True:
            pass
        """,
        ends("timeout"),
    ),
    Attack(
        "becoming another program",
        """
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.execv("/bin/sleep", ["sleep", "60"])
        """,
        ends("timeout"),
    ),
    Attack(
        "leaving processes behind",
        """
        import time
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(3600)
                os._exit(0)
        print("gone")
        """,
        says="gone",
    ),
    Attack(
        "leaving a thread behind that never ends",
        """
        import threading, time
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        print("gone")
        """,
        says="gone",
    ),
    Attack(
        "leaving shared memory and queues behind",
        """
        import ctypes
        libc = ctypes.CDLL(None)
        print(libc.shmget(0, 4096, 0o1600), libc.semget(0, 1, 0o1600), libc.msgget(0, 0o1600))
        """,
        says="-1 -1 -1",
    ),
    Attack(
        "a folder that cannot be removed",
        """
        for _ in range(50):
            os.mkdir("d")
            os.chdir("d")
            open("f", "w").close()
            os.chmod("..", 0)
        os.chmod(".", 0)
        """,
        ends("ok", "error"),
    ),
    Attack(
        "a very deep folder",
        """
        for _ in range(1000):
            os.mkdir("d" * 100)
            os.chdir("d" * 100)
        """,
        ends("ok", "error"),
    ),
    Attack("links to everywhere", "for n, p in enumerate(('/', '/tmp', '.', '/etc/passwd')): os.symlink(p, str(n))"),
]

MUTINIES = [
    Attack("closing all files", "os.closerange(0, 65536)\nprint('nobody hears')", ends("ok", "error")),
    Attack(
        "writing to all files",
        """
        for fd in range(3, 64):
            tries(lambda: os.write(fd, b'{"value": "1", "memory": true}\\nnot json\\n[' * 9))
        """,
        ends("ok", "memory"),
    ),
    Attack(
        "replacing all files",
        """
        reading, writing = os.pipe()
        for fd in set(range(64)) - {reading, writing}:
            os.dup2(writing, fd)
        print("into the void")
        """,
    ),
    Attack("os._exit", "print('lost')\nos._exit(0)", says=""),
    Attack("sys.exit with a text", "import sys\nsys.exit('no')", ends("error")),
    Attack("sys.exit from nowhere", "raise SystemExit(7)", ends("error")),
    Attack("an error of the wildest kind", "class E(BaseException):\n    __str__ = None\nraise E", ends("error")),
    Attack("a crash", "import ctypes\nctypes.string_at(0)", ends("killed")),
    Attack("ending itself", "import signal\nos.kill(os.getpid(), signal.SIGKILL)", ends("killed")),
    Attack("stopping itself", "import signal\nos.kill(os.getpid(), signal.SIGSTOP)", ends("timeout")),
    Attack(
        "changing what everyone uses",
        """
        import builtins, io, json, sys
        os._exit = os.write = json.dumps = sys.exit = io.TextIOWrapper = None
        builtins.print = builtins.open = builtins.len = builtins.compile = None
        sys.modules.clear()
        """,
        ends("ok", "error", "killed"),
    ),
    Attack(
        "changing the runner through its frames",
        """
        import sys
        frame = sys._getframe().f_back
        while frame:
            frame.f_globals.clear()
            frame = frame.f_back
        """,
        ends("ok", "error", "killed"),
    ),
]

EVERYWHERE = [*BOMBS, *ESCAPES, *TRACES, *MUTINIES]

# What nothing but namespaces can keep code from.
WITH_BUBBLEWRAP = [
    Attack(
        "seeing other processes",
        """print(sorted(int(name) for name in os.listdir("/proc") if name.isdigit()) == [1, os.getpid()])""",
        says="True",
    ),
    Attack(
        "killing everyone",
        """
        import signal
        if os.fork() == 0:
            os.kill(-1, signal.SIGKILL)
        os.wait()
        """,
        ends("ok", "killed"),
    ),
    Attack(
        "filling the disk with many files",
        """
        for number in range(1000):
            open(str(number), "wb").write(b"x" * (1 << 20))
        """,
        ends("error"),
    ),
    Attack("seeing the machine's name", "print(os.uname().nodename)", says="sandbox"),
]
