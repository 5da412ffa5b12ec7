# SPDX-License-Identifier: Apache-2.0
"""A `gym` that was forked is as good as one that was started: it says and does the same."""

import os
import signal
import subprocess
import sys

import pytest

from tests.support import warm_start
from tests.support.small_servers import free_port
from tests.support.warm_start import WarmProcess

pytestmark = pytest.mark.slow
SHOW = """
import os, signal, sys, threading
print(os.getcwd(), os.environ["OF_ITS_OWN"], "ONLY_HERE" in os.environ, sys.argv[1:], sys.path[0], sep="\\n")
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGCHLD).name)
print(threading.active_count(), sys.stdin.read() == "", sorted(os.listdir("/proc/self/fd")))
sys.exit(7)
"""


@pytest.mark.parametrize(
    "arguments",
    [("--version",), ("env", "status", "--json"), ("eval", "profile", "--rollouts", "nowhere.jsonl"), ("no-such",)],
)
def test_it_says_what_a_fresh_one_says(tmp_path, arguments):
    command = [*arguments, f"++head_server.port={free_port()}"] if "status" in arguments else list(arguments)
    fresh = subprocess.run(
        [sys.executable, "-m", "nemo_gym.cli.main", *command], cwd=tmp_path, capture_output=True, text=True
    )
    warm = warm_start.run(command, cwd=tmp_path, timeout=300)
    assert (warm.returncode, warm.stdout, warm.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)


def test_it_has_a_folder_an_environment_and_streams_of_its_own(tmp_path, monkeypatch):
    warm_start.run([], cwd=tmp_path, timeout=300, program="")
    monkeypatch.setenv("ONLY_HERE", "1")
    env = {"OF_ITS_OWN": "yes", "PYTHONPATH": str(tmp_path)}
    done = warm_start.run(["a", "b"], cwd=tmp_path, timeout=300, env=env, program=SHOW)
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines() == [
        str(tmp_path),
        "yes",
        "False",
        "['a', 'b']",
        str(tmp_path),
        "True SIG_DFL",
        "1 True ['0', '1', '2', '3']",
    ]


def test_it_can_be_killed_and_what_it_prints_ends_with_it(tmp_path):
    program = "import sys, time; print('there', flush=True); time.sleep(1000)"
    process = WarmProcess([], cwd=tmp_path, program=program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with process.stdout as said:
        assert said.readline() == "there\n"
        assert process.poll() is None
        assert process.pid != os.getpid()
        process.kill()
        assert said.read() == ""
    assert process.wait(300) == -signal.SIGKILL
