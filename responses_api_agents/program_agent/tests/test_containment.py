# SPDX-License-Identifier: Apache-2.0
"""Programs that want out of their sandbox: what each tries, and that nothing of it is left."""

import asyncio
import contextlib
import os
import socket
import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from nemo_gym.testing import agent_config, running
from responses_api_agents.program_agent.app import ProgramAgent
from responses_api_agents.program_agent.tests.played_programs import (
    ActingModel,
    Bench,
    make_row,
    play,
    python_program,
)

pytestmark = pytest.mark.thorough


@pytest.fixture(autouse=True)
def nothing_left(tmp_path, monkeypatch):
    """Fail if a process, a mount or a folder of a rollout is left."""
    tmp_path.chmod(0o755)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    yield
    left = [process for process in psutil.Process().children(recursive=True) if process.pid not in before]
    assert left == []
    assert [folder for folder in tmp_path.iterdir() if folder.name.startswith("nemo-gym")] == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


async def attack(source: str, **config: Any) -> str:
    """Return what a program prints that tries something, and then asks its model."""
    row = await play(**python_program(f"{source}\nchat('Hello')", **config))
    assert "_ng_failure_class" not in row, row["_ng_failure_message"]
    printed: str = row["program"]["stdout"]
    return printed


async def test_it_reads_no_file_of_the_user_and_writes_none_outside(tmp_path):
    (tmp_path / "secret.txt").write_text("a secret")
    outside = ["/usr/x", "/etc/x", "/x", str(tmp_path / "x")]
    printed = await attack(f"""
secret, home, source = {str(tmp_path / "secret.txt")!r}, {str(Path.home())!r}, {str(Path(__file__))!r}
for path in [secret, home, source, "/etc/shadow", "/proc/1/root/root"]:
    try:
        print("READ", path, os.listdir(path) if os.path.isdir(path) else open(path).read())
    except OSError as error:
        print(type(error).__name__)
for path in {outside!r}:
    try:
        open(path, "w").close()
    except OSError as error:
        print(type(error).__name__)
""")
    # The home folder itself may be on the way to the interpreter, and then holds nothing else.
    read = [line for line in printed.splitlines() if line.startswith("READ") and str(Path.home()) not in line]
    assert read == []
    assert "a secret" not in printed
    assert ".ssh" not in printed
    # An ordinary user's program may write beside the files that it sees, where it alone sees that.
    assert not any(map(os.path.exists, outside))


async def test_it_sees_no_other_process_and_no_environment_of_ours(monkeypatch):
    monkeypatch.setenv("OUR_OWN_SECRET", "xyzzy-plugh")
    printed = await attack(
        f"ours = {os.getpid()}"
        + """
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        print(pid, open(f"/proc/{pid}/environ").read(), open(f"/proc/{pid}/cmdline").read())
    except OSError as error:
        print(pid, type(error).__name__)
try:
    os.kill(ours, 9)
except OSError as error:
    print("kill:", type(error).__name__)
"""
    )
    assert "xyzzy-plugh" not in printed
    assert "PYTEST_CURRENT_TEST" not in printed
    assert "NEMO_GYM_RUN_TOKEN" not in printed.upper().replace("-", "_")
    assert "kill: ProcessLookupError" in printed
    assert len({line.split()[0] for line in printed.splitlines() if line[:1].isdigit()}) < 10


async def test_it_reaches_no_socket_but_its_gateway(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        printed = await attack(f"""
for address in [("127.0.0.1", {port}), ("127.0.0.1", 11000), ("1.1.1.1", 443), ("10.0.0.1", 80)]:
    try:
        socket.create_connection(address, timeout=3)
        print("REACHED", address)
    except OSError as error:
        print(type(error).__name__, error)
try:
    print("RESOLVED", socket.getaddrinfo("registry.npmjs.org", 443))
except OSError as error:
    print(type(error).__name__)
""")
    assert "REACHED" not in printed
    assert "RESOLVED" not in printed


async def test_its_gateway_knows_this_rollout_only():
    printed = await attack("""
paths = ["/sessions", "/sessions/other", "/sessions/other/v1/chat/completions", "/v1/../sessions", "/run", "/verify",
         "/seed_session", "/global_config_dict_yaml", "/v1/sessions", "/mcp", "/v1/responses/../../sessions",
         "/v1/chat/completions/../../../sessions", "//sessions", "/v1/v1/../sessions"]
for path in paths:
    for method, data in (("GET", None), ("POST", b"{}"), ("DELETE", None)):
        request = urllib.request.Request(os.environ["ROOT"] + path, data, method=method)
        try:
            print("ANSWERED", method, path, urllib.request.urlopen(request, timeout=10).read())
        except urllib.error.HTTPError as error:
            print(error.code)
""")
    assert "ANSWERED" not in printed
    assert set(printed.split()) == {"404"}


async def test_what_the_program_is_told_holds_no_key_and_no_session():
    row = await play(**python_program("print(dict(os.environ)); chat('Hello', user='me')"))
    printed = row["program"]["stdout"].lower()
    assert "ng-session-" not in printed
    assert "rollout-" not in printed
    assert "token" not in printed


async def test_it_is_given_the_prompt_and_the_files_of_its_task_and_nothing_else_of_it():
    search = """
found = [str(dict(os.environ)), str(sys.argv)]
for top in ("/tmp", "/workspace"):
    for place, folders, names in os.walk(top):
        for path in (os.path.join(place, name) for name in names):
            if os.path.isfile(path):
                found.append(open(path, errors="replace").read())
print("PROMPT" if any("Repair add()" in text for text in found) else "")
print("GOLD" if any("the gold " + "answer" in text for text in found) else "")
chat("Hello")
"""
    row = await play(make_row(expected_answer="the gold answer"), **python_program(search))
    assert row["program"]["stdout"].split() == ["PROMPT"]


async def test_with_an_open_network_it_reaches_this_machine():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        printed = await attack(
            f"socket.create_connection(('127.0.0.1', {port}), timeout=10); print('REACHED')", network="open"
        )
    assert printed == "REACHED\n"


async def test_it_does_not_see_the_workspace_of_another_rollout(tmp_path):
    program = python_program(f"""
found = []
for top in ("/tmp", {str(tmp_path)!r}, "/workspace"):
    for place, folders, names in os.walk(top):
        found += [place + "/" + name for name in names]
print(found)
open("mine-" + str(os.getpid()), "w")
chat("Hello")
time.sleep(1)
""")
    servers = {"world": Bench, "policy_model": ActingModel, "agent": (ProgramAgent, agent_config("world", **program))}
    async with running(**servers) as client:
        replies = await asyncio.gather(*(client.post("agent", "/run", json=make_row()) for _ in range(3)))
        rows = [await reply.json() for reply in replies]
    for row in rows:
        assert "'/workspace/calc.py'" in row["program"]["stdout"]
        assert "mine-" not in row["program"]["stdout"]
        assert "nemo-gym" not in row["program"]["stdout"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "how",
    [
        "subprocess.Popen(stay)",
        "subprocess.Popen(stay, start_new_session=True)",
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: os.execvpe(stay[0], stay, {})\n    os._exit(0)",
    ],
    ids=["in the background", "in a session of its own", "as a daemon without environment"],
)
async def test_a_process_that_stays_behind_ends_with_the_program(how):
    name = f"stays{uuid4().hex}"[:15]  # of this test alone: others run beside it; a name of a process is no longer
    stay = f"import ctypes, time; ctypes.CDLL(None).prctl(15, b'{name}'); time.sleep(600)"
    await attack(f"stay = [sys.executable, '-c', {stay!r}]\n{how}\ntime.sleep(1)")
    assert [process for process in psutil.process_iter(["name"]) if process.info["name"] == name] == []


async def test_a_fork_bomb_is_bounded_and_ends():
    bomb = "chat('Hello')\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    row = await play(**python_program(bomb, max_processes=30, time_limit_s=20))
    assert row["program"]["fault"]["kind"] == "process_limit"


@pytest.mark.thorough
async def test_a_program_that_fills_the_disk_ends_and_leaves_the_disk_as_it_was():
    row = await play(
        **python_program(
            "chat('Hello')\nfor n in range(10**6):\n    open(f'/tmp/{n}', 'wb').write(bytes(2**20)); time.sleep(0.01)",
            max_disk_mib=16,
        )
    )
    assert row["program"]["fault"]["kind"] == "disk_limit"


@pytest.mark.thorough
async def test_folders_that_nobody_may_enter_are_removed_all_the_same():
    await attack("os.makedirs('a/b'); open('a/b/c', 'w'); os.chmod('a/b', 0); os.chmod('a', 0)")


async def test_a_rollout_that_is_cancelled_leaves_nothing(tmp_path):
    program = python_program("chat('Hello')\nsubprocess.Popen(['sleep', '600'])\ntime.sleep(600)")
    servers = {"world": Bench, "policy_model": ActingModel, "agent": (ProgramAgent, agent_config("world", **program))}
    async with running(**servers) as client:
        playing = asyncio.create_task(client.post("agent", "/run", json=make_row()))
        while not _find_sleepers():  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(0.02)
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
    assert _find_sleepers() == []


def _find_sleepers() -> list[psutil.Process]:
    sleepers = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            sleepers += [process] if process.name() == "sleep" else []
    return sleepers


def test_temporary_files_of_these_tests_are_their_own(tmp_path):
    assert tempfile.gettempdir() == str(tmp_path)
