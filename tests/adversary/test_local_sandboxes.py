# SPDX-License-Identifier: Apache-2.0
"""Commands in a local sandbox reach neither files nor networks of the machine, with bubblewrap or without it."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.sandbox import AsyncSandbox, SandboxSpec
from tests.adversary.local_sandbox_attacks import ATTACKS
from tests.support.ordinary_user import start_script

ISOLATIONS = ["bubblewrap", "rlimits"] if shutil.which("bwrap") else ["rlimits"]
USERS = ["root", "ordinary user"] if os.geteuid() == 0 else ["ordinary user"]
COMBINATIONS = [(user, isolation) for user in USERS for isolation in ISOLATIONS]


def attack(user: str, settings: dict[str, Any], *options: str) -> dict[str, Any]:
    script = Path(__file__).with_name("local_sandbox_attacks.py")
    with start_script(script, json.dumps(settings), *options, ordinary=user != "root") as server:
        return json.loads(server.stdout.read())


@pytest.fixture(scope="module", params=COMBINATIONS, ids=" with ".join)
def attacked(request) -> dict[str, Any]:
    """What came of all attacks on a server of one user with one kind of sandbox."""
    user, isolation = request.param
    # Where a program is missing, `auto` has to find something that isolates.
    settings = {"isolation": isolation} if isolation == "bubblewrap" else {"bubblewrap": "no-such-program"}
    told = attack(user, settings)
    assert told["isolation"] == isolation
    return told


@pytest.mark.fault(
    place="Local sandbox",
    fault="A command reads keys, calls loopback, looks at the server or changes it, with bubblewrap or without.",
    outcome="It gets nothing: only the system's programs and its own folders are there.",
)
def test_a_command_gets_nothing_of_the_machine(attacked):
    assert attacked["attacks"] == dict.fromkeys(ATTACKS, "")
    assert attacked["kept"]


def test_ordinary_work_goes_on(attacked):
    assert attacked["work"] == {
        "ends its own process": "143\n",
        "limits the time of its own process": "124\n",
        "uses pipes and files": "3 2 1 link\n",
        "uses Python": " True\n",
        "closes its folders": "700\n700\n",
    }


@pytest.mark.fault(
    place="Local sandbox",
    fault="Another user of the machine looks into the folder of a sandbox.",
    outcome="It is closed; the user that root's commands run as may pass through it, not look around.",
)
def test_the_folder_of_a_sandbox_is_closed_to_others(attacked, request):
    is_root = "root" in request.node.callspec.id
    assert attacked["root"] == ("0o710" if is_root else "0o700")


@pytest.mark.fault(
    place="Local sandbox",
    fault="There is no bubblewrap, and the kernel has no rules for files.",
    outcome="The sandbox is refused with what to do, unless the config says `isolation: none`.",
)
def test_where_nothing_isolates_there_is_no_sandbox():
    told = attack("ordinary user", {"bubblewrap": "no-such-program"}, "no-landlock")
    reason, hint = told["refused"].split("\nhint: ")
    assert "'no-such-program' is not installed" in reason
    assert "this kernel has no Landlock" in reason
    assert "set `isolation: none`" in hint


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can let commands be root")
@pytest.mark.fault(
    place="Local sandbox",
    fault="Commands run as root (`run_as: root`), without bubblewrap.",
    outcome="They have none of root's power over the machine, and get nothing either.",
)
def test_commands_that_run_as_root_get_nothing_either():
    told = attack("root", {"isolation": "rlimits", "run_as": "root"})
    assert told["attacks"] == dict.fromkeys(ATTACKS, "")


async def test_isolation_none_isolates_nothing_and_says_so(caplog):
    async with await AsyncSandbox({"local": {"isolation": "none"}}, SandboxSpec()).start() as box:
        seen = await box.exec(f"ls /proc/{os.getpid()}/cmdline; python3 -c 'import socket; print(socket.socket())'")
    assert f"/proc/{os.getpid()}/cmdline\n<socket.socket" in seen.stdout
    assert "not isolated from files and network" in caplog.text
