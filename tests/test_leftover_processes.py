# SPDX-License-Identifier: Apache-2.0
"""What tests have started ends with them."""

import subprocess
import sys

import psutil
import pytest

from nemo_gym import PARENT_DIR
from tests.support.leftover_processes import MARK

RUN = """
import os, signal, subprocess, sys
from tests.support.leftover_processes import watch_leftovers
watch_leftovers()
sleeping = [sys.executable, "-c", "import time; time.sleep(3600)"]
print(subprocess.Popen(sleeping, start_new_session=True).pid, flush=True)
os.kill(os.getpid(), signal.{signal})
"""


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_a_run_that_is_ended_leaves_no_process(monkeypatch, name):
    monkeypatch.delenv(MARK)  # a run of its own, not a part of this one
    run = subprocess.run(
        [sys.executable, "-c", RUN.replace("{signal}", name)], cwd=PARENT_DIR, stdout=subprocess.PIPE, text=True
    )
    try:
        sleeper = psutil.Process(int(run.stdout))
    except psutil.NoSuchProcess:
        return
    sleeper.wait(timeout=300)


def test_all_that_a_test_starts_is_marked():
    said = subprocess.run([sys.executable, "-c", f"import os; print(len(os.environ['{MARK}']))"], capture_output=True)
    assert said.stdout.split() == [b"32"]
