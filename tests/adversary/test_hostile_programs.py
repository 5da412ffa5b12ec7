# SPDX-License-Identifier: Apache-2.0
"""A program that plays a rollout leaves a workspace, and its verifier must be able to read all of it safely."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.base_resources_server import BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.sandbox.utils import remove_folder
from responses_api_agents.program_agent.rollout_folder import PREFIX, remove_stale_folders
from responses_api_agents.program_agent.tests.played_programs import BenchRequest, make_row, play, python_program
from responses_api_agents.program_agent.workspace import CopyLimits, copy_workspace

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="programs are contained by bubblewrap"),
]


class ReaderResponse(BaseVerifyResponse):
    """What a verifier reads in the workspace that it is given."""

    read: dict[str, str]
    left_out: list[str]


class Reader(SimpleResourcesServer):
    """A verifier that opens every path, as one does that runs tests in the workspace."""

    async def verify(self, body: BenchRequest) -> ReaderResponse:  # type: ignore[override]
        top = Path(body.workspace["path"])
        read = {}
        for place, _, names in os.walk(top):
            for path in (Path(place, name) for name in names):
                if path.is_file():
                    read[str(path.relative_to(top))] = path.read_text(errors="replace")
        given = body.model_dump(exclude={"workspace"})
        return ReaderResponse(**given, read=read, left_out=body.workspace["left_out"], reward=float("own.txt" in read))


async def leave(source: str, **config: Any) -> dict[str, Any]:
    """Return the row of a program that asks its model, writes a file of its own, and then does something else."""
    program = f"chat('Hello')\nopen('own.txt', 'w').write('mine')\n{source}"
    return await play(make_row(), world=Reader, **python_program(program, **config))


@pytest.mark.fault(
    place="Program's workspace",
    fault="Links that stay within by their text, and lead to files of the host when they are followed",
    outcome="They are left out and named; the verifier reads the program's own files only, and scores them.",
)
async def test_no_chain_of_links_leads_out_of_a_workspace(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "secret.txt").write_text("of the host")
    up = "/".join([".."] * 20)
    row = await leave(f"""
secret = {str(tmp_path / "secret.txt")!r}
deep = "/".join("abcdefghijklmnopqrstuvwxy")
os.makedirs(deep)
os.symlink("/".join([".."] * 25), deep + "/top")
os.symlink("top/{up}" + secret, deep + "/stolen")
os.symlink(deep + "/stolen", "stolen")
os.symlink(secret, "absolute")
os.symlink("own.txt", "within")
os.symlink("loop", "loop")
""")
    assert row["reward"] == 1.0
    assert "of the host" not in row["read"].values()
    assert row["read"]["within"] == "mine"
    assert {"absolute", "loop", "stolen"} <= set(row["left_out"])


@pytest.mark.thorough
@pytest.mark.fault(
    place="Program's workspace",
    fault="FIFOs, sockets, names that are no text, links to them, and 10,000 folders in one another",
    outcome="None is copied, each is named in `left_out`, nothing waits, and the rollout is scored.",
)
async def test_nothing_that_a_program_leaves_keeps_it_from_being_scored():
    row = await leave(
        r"""
os.mkfifo("pipe"), os.symlink("pipe", "to-pipe")
socket.socket(socket.AF_UNIX).bind("socket")
open(b"caf\xe9", "w"), os.mkdir(b"\xff"), open(b"\xff/inner", "w"), os.symlink(b"\xfe", "to-no-text")
os.mkdir(os.environ["HOME"] + "/logs"), open(os.environb[b"HOME"] + b"/logs/\xe9.log", "w")
for _ in range(10_000):
    os.mkdir("d"), os.chdir("d")
""",
        artifacts=["logs/*"],
    )
    assert row["reward"] == 1.0, row.get("_ng_failure_message")
    assert row["read"]["own.txt"] == "mine"
    assert {"pipe", "socket", "caf\\xe9", "\\xff/", "to-no-text"} <= set(row["left_out"])
    assert any(name.startswith("d/d/d/") for name in row["left_out"])
    assert list(row["artifacts"]) == ["logs/\\xe9.log"]


@pytest.mark.fault(
    place="Program's workspace",
    fault="A hard link to a file outside, or a device",
    outcome="It is left out and named; hard links among the program's own files are copied.",
)
def test_a_file_that_has_another_name_outside_is_left_out(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "secret.txt").write_text("of the host")
    os.link(tmp_path / "secret.txt", work / "stolen")
    (work / "one").write_text("mine")
    os.link(work / "one", work / "two")
    if os.geteuid() == 0:
        os.mknod(work / "device", 0o20666, os.makedev(1, 5))
    left_out = copy_workspace(work, tmp_path / "copy", CopyLimits())
    assert sorted(os.listdir(tmp_path / "copy")) == ["one", "two"]
    assert left_out == (["device", "stolen"] if os.geteuid() == 0 else ["stolen"])


@pytest.mark.thorough
@pytest.mark.fault(
    place="Program's workspace",
    fault="A killed run leaves a folder that holds 10,000 folders in one another",
    outcome="The next agent starts, and removes it.",
)
def test_a_deep_folder_of_a_killed_run_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / f"{PREFIX}killed"
    left.mkdir()
    (left / "lock").touch()
    here = os.open(left, os.O_RDONLY)
    for _ in range(10_000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        remove_stale_folders()
        assert os.listdir(tmp_path) == []
    finally:
        remove_folder(str(left))  # pytest could not


@pytest.mark.fault(
    place="Program in a sandbox",
    fault="It opens a user namespace, whoever runs the agent, in which it would have more of the kernel to attack",
    outcome="It is refused, by `clone`, `clone3` and `unshare`; threads and processes work.",
)
async def test_a_program_opens_no_user_namespace():
    row = await leave("""
import ctypes, threading
libc = ctypes.CDLL(None, use_errno=True)
clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
print(libc.unshare(0x10000000), libc.syscall(clone, 0x10000000 | 17, 0, 0, 0, 0), libc.syscall(435, 0, 0))
print(subprocess.run(["unshare", "-Ur", "echo", "opened"], capture_output=True, text=True).stdout or "refused")
threading.Thread(target=print, args=["threads work"]).start()
""")
    assert row["program"]["stdout"].splitlines() == ["-1 -1 -1", "refused", "threads work"]


LAST_ACTS = {
    "a malformed call": "try: ask('/v1/chat/completions', messages='nonsense')\nexcept urllib.error.HTTPError: pass",
    "a call it does not wait for": (
        "request = b'POST /v1/chat/completions HTTP/1.1\\r\\nhost: x\\r\\ncontent-length: 9\\r\\n\\r\\n'\n"
        "socket.create_connection(('127.0.0.1', int(os.environ['ROOT'].rpartition(':')[2]))).sendall(request)\n"
        "time.sleep(0.2)"
    ),
    "an exit code": "sys.exit(1)",
}


@pytest.mark.fault(
    place="Program in a sandbox",
    fault="It fails on purpose after its work: a malformed last model call, an exit code, an exceeded limit",
    outcome="The verifier scores what it left; what it did wrong is in the row, and no fault of the endpoint.",
)
@pytest.mark.parametrize("how", LAST_ACTS)
async def test_a_program_cannot_decide_not_to_be_scored(how):
    row = await leave(LAST_ACTS[how])
    assert "_ng_failure_class" not in row, row["_ng_failure_message"]
    assert row["reward"] == 1.0


async def test_a_program_that_fails_gets_the_configured_reward():
    row = await leave("sys.exit(1)", program_fault_reward=-0.5)
    assert row["reward"] == -0.5
    assert row["program"]["fault"]["kind"] == "program_failed"


@pytest.mark.fault(
    place="Program's workspace",
    fault="Too many files, folders too deep, or more than can be copied in time",
    outcome="What is beyond the bounds of the config is named in `left_out`; the rest is scored.",
)
@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ({"max_workspace_files": 5}, "more than 5 files"),
        ({"max_workspace_depth": 1}, "a/b/"),
        ({"collect_timeout_s": 1e-9}, "it took too long"),
    ],
)
async def test_collecting_a_workspace_is_bounded(bounds, says):
    row = await leave("os.makedirs('a/b/c')\nfor n in range(9): open(f'a/b/{n}', 'w')", **bounds)
    assert "_ng_failure_class" not in row
    assert says in " ".join(row["left_out"])
