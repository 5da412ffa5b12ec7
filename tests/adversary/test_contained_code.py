# SPDX-License-Identifier: Apache-2.0
"""Code in a sandbox reaches neither its server nor the next piece of code, whoever the server's user is."""

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from nemo_gym.code_execution import CodePool
from tests.support.ordinary_user import start_script

HERE = Path(__file__).parent
ISOLATIONS = ["bubblewrap", "rlimits"] if shutil.which("bwrap") else ["rlimits"]
USERS = ["root", "ordinary user"] if os.geteuid() == 0 else ["ordinary user"]
NAMED = "grandchild-of-x"
ONE_THAT_FORKS_AND_SLEEPS = f"""
import ctypes, os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"{NAMED}")
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""


@pytest.fixture(
    scope="module", params=[(user, isolation) for user in USERS for isolation in ISOLATIONS], ids=" with ".join
)
def attacked(request) -> dict[str, dict[str, Any]]:
    """What came of each attack on a server of one user with one kind of sandbox; nothing, once the server is dead."""
    user, isolation = request.param
    with start_script(HERE / "contained_attacks.py", isolation, ordinary=user != "root") as server:
        lines = server.stdout.readlines()
    return {ended["name"]: {**ended, "isolation": isolation} for ended in map(json.loads, lines)}


def outcome_of(attack: str, attacked: dict[str, dict[str, Any]]) -> str:
    """Return what the attacking program said, if neither the server nor the next program noticed."""
    assert attack in attacked, "the server did not live to tell"
    ended = attacked[attack]
    assert ended["status"] == "ok", ended
    assert ended["kept"] == {"program": True, "server": True}, ended
    return ended["said"]


@pytest.mark.fault(
    place="Sandbox for code",
    fault="A program lowers the limits of its sandbox and of its server (`prlimit`).",
    outcome="It is refused, and the next program has the limits that it should have.",
)
def test_the_limits_of_others_stay_as_they_are(attacked):
    assert outcome_of("lowers the limits of others", attacked) == "{'PermissionError'}\n{'PermissionError'}"


@pytest.mark.fault(
    place="Sandbox for code",
    fault="A program changes priority, scheduling or processors of its sandbox, its server or all that its user runs.",
    outcome="It is refused.",
)
def test_the_priority_of_others_stays_as_it_is(attacked):
    assert outcome_of("slows others down", attacked) == ""


@pytest.mark.fault(
    place="Sandbox for code",
    fault="A program makes the kernel send signals for it (`F_SETOWN`, `F_SETSIG`, `FIOSETOWN`).",
    outcome="It is refused, and the server lives.",
)
def test_the_kernel_sends_nobody_a_signal_for_the_code(attacked):
    assert set(outcome_of("has the kernel kill others", attacked)) <= set("PermissionError {'}\n")


@pytest.mark.fault(
    place="Sandbox for code",
    fault="A program signals its server.",
    outcome="It is refused; processes of its own it may kill.",
)
def test_the_server_cannot_be_signalled(attacked):
    assert "done" not in outcome_of("signals the server", attacked)
    assert outcome_of("ends a process of its own", attacked) == "-9"


@pytest.mark.fault(
    place="Sandbox for code",
    fault="A program opens a user namespace, in which it would have more of the kernel to attack.",
    outcome="It is refused, by `clone`, `clone3` and `unshare`.",
)
def test_there_are_no_nested_namespaces(attacked):
    eperm, enosys = 1, 38
    assert outcome_of("makes namespaces", attacked) == f"{eperm} {eperm} {enosys}"


@pytest.mark.fault(
    place="Sandbox for code",
    fault="A program takes the numbers that system calls have for x32 programs.",
    outcome="All of them are refused.",
)
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x32 is a kind of x86-64")
def test_calls_of_another_abi_are_refused(attacked):
    assert outcome_of("uses the calls of another ABI", attacked) == "1 1"


@pytest.mark.fault(
    place="Sandbox for code",
    fault="A program takes a lease on a file of its user, for which all who open it wait.",
    outcome="It is refused.",
)
def test_files_of_the_user_cannot_be_held_back(attacked):
    assert outcome_of("holds a file of its user back", attacked) == "PermissionError"


def test_a_program_may_lower_its_own_limits_and_priority(attacked):
    assert outcome_of("manages itself", attacked) == "(32, 64) (5, 5)\n16"


@pytest.mark.fault(
    place="Sandbox for code",
    fault="A program looks for files of the project, wherever that lies.",
    outcome="It finds none but the packages that it may import.",
)
def test_nothing_of_the_project_is_seen(attacked):
    assert outcome_of("looks for files of the project", attacked) == "[]"


@pytest.mark.fault(
    place="Sandbox for code",
    fault="Another user of the machine looks into the folder of a sandbox.",
    outcome="The folder is closed to all but the code's user; under bubblewrap it is in memory of its own.",
)
def test_the_folder_of_a_sandbox_is_closed_to_others(attacked):
    mode, folder = outcome_of("looks at its folder", attacked).split()
    assert mode == "0o700" or attacked["looks at its folder"]["isolation"] == "bubblewrap"
    assert not os.path.exists(folder) or attacked["looks at its folder"]["isolation"] == "bubblewrap"


@pytest.mark.fault(
    place="Sandbox for code",
    fault="Something lowers the limits of the process that starts the programs.",
    outcome="The sandbox is replaced before the next program.",
)
@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_sandbox_whose_limits_changed_is_replaced(isolation):
    async with CodePool(workers=1, isolation=isolation) as pool:
        running = asyncio.ensure_future(pool.run(ONE_THAT_FORKS_AND_SLEEPS.replace("600", "0.3")))
        (sandbox,) = {process.parent() for process in await soon(lambda: named_below(psutil.Process()))}
        resource.prlimit(sandbox.pid, resource.RLIMIT_FSIZE, (9, 9))
        await running
        assert (await pool.run("print(open('file', 'wb', buffering=0).write(b'x' * 100))")).stdout == "100\n"


@pytest.mark.fault(
    place="Sandbox for code",
    fault="The server and the process that watches the code, or the one above it, are killed at once (SIGKILL).",
    outcome="No process of the code is left, and no folder.",
)
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("killed", ["keeper", "watcher"])
async def test_no_grandchild_outlives_the_killed(user, isolation, killed):
    script, ordinary = HERE / "server_of_one_program.py", user != "root"
    with start_script(script, isolation, ONE_THAT_FORKS_AND_SLEEPS, ordinary=ordinary) as process, killing(process):
        server = psutil.Process(process.pid)
        (grandchild,) = await soon(lambda: named_below(server))
        below = server.children(recursive=True)
        (keeper,) = server.children()
        folder = None
        with suppress(psutil.AccessDenied):  # only root may look
            folder = Path(keeper.environ()["HOME"])
        (watcher,) = keeper.children()
        for victim in (server, {"keeper": keeper, "watcher": watcher}[killed]):
            with suppress(psutil.NoSuchProcess):  # it may have ended with the server
                victim.send_signal(signal.SIGKILL)
    await soon(lambda: not any(map(is_alive, [grandchild, *below])))
    await soon(lambda: isolation == "bubblewrap" or folder is None or not folder.exists())


@contextmanager
def killing(process: "subprocess.Popen[str]") -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()


def named_below(process: psutil.Process) -> list[psutil.Process]:
    found = []
    for one in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found += [one] if one.name() == NAMED else []
    return found


def is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


async def soon(look):
    async with asyncio.timeout(300):
        while not (seen := look()):  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.01)
    return seen
