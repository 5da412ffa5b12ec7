# SPDX-License-Identifier: Apache-2.0
"""The first moments of a server process, in real processes."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress

import psutil
import pytest

from nemo_gym._servers.processes.entrypoint import LIFELINE_FD, READY_FD, load_server_class, say_ready, take_fd
from tests.support.small_servers import until


@contextmanager
def child(folder, entrypoint: str, *arguments: str, **options):
    (folder / "app.py").write_text(entrypoint)
    lifeline, ours = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "nemo_gym._servers.processes.entrypoint", "app.py", *arguments],
        cwd=folder,
        env={**os.environ, LIFELINE_FD: str(lifeline), "PYTHONUNBUFFERED": "1"},
        pass_fds=[lifeline],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,
    )
    os.close(lifeline)
    try:
        yield process, ours
    finally:
        with suppress(OSError):
            os.close(ours)
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_entrypoint_runs_as_a_script_does(tmp_path):
    (tmp_path / "beside.py").write_text("NAME = 'a module beside it'")
    entrypoint = (
        "import os, sys, beside\nprint(__name__, sys.argv, os.getcwd(), beside.NAME, 'LIFELINE' in str(os.environ))"
    )
    with child(tmp_path, entrypoint, "--flag") as (process, _):
        assert process.stdout.read() == (
            f"__main__ {[str(tmp_path / 'app.py'), '--flag']} {tmp_path} a module beside it False\n"
        )
        assert process.wait() == 0


def test_a_server_in_a_nested_folder_is_imported_under_its_whole_name(tmp_path, monkeypatch):
    folder = tmp_path / "responses_api_agents/talks_for_a_test/simulation"
    folder.mkdir(parents=True)
    (folder / "turns.py").write_text("class Base: ...")
    imported = "from responses_api_agents.talks_for_a_test.simulation.turns import Base\n"
    (folder / "app.py").write_text(
        f"{imported}class Simulation(Base): ...\nif __name__ == '__main__':\n    Simulation.run_webserver()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    server = load_server_class(folder, "app.py", object)
    assert server.__module__ == "responses_api_agents.talks_for_a_test.simulation.app"


def test_the_exit_code_is_that_of_the_entrypoint(tmp_path):
    with child(tmp_path, "raise SystemExit(7)") as (process, _):
        assert process.wait() == 7


def test_a_package_that_is_missing_comes_with_how_to_get_it(tmp_path):
    with child(tmp_path, "import sys\nsys.modules['ray'] = None\nimport ray") as (process, _):
        *_, cause, hint = process.stdout.read().splitlines()
        assert cause.startswith("ModuleNotFoundError: ")
        assert hint == "hint: Ray is an extra of NeMo Gym: pip install 'nemo-gym[ray]'"
        assert process.wait() == 1


def test_a_mistake_of_the_user_ends_it_without_a_traceback(tmp_path):
    code = "from nemo_gym.errors import GymError\nraise GymError('it is so.\\nhint: do this')"
    with child(tmp_path, code) as (process, _):
        assert process.stdout.read() == "it is so.\nhint: do this\n"
        assert process.wait() == 1


def test_an_interrupt_while_it_starts_leaves_no_traceback(tmp_path):
    with child(tmp_path, "print('here')\nimport time; time.sleep(1000)") as (process, _):
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 130
        assert process.stdout.read() == ""


GRANDCHILDREN = """
import subprocess, time
started = [subprocess.Popen(["sleep", "1000"], start_new_session=flag) for flag in (True, False)]
print(*(process.pid for process in started))
time.sleep(1000)
"""


def test_it_ends_with_its_parent_and_takes_along_what_it_started(tmp_path):
    with child(tmp_path, GRANDCHILDREN) as (process, lifeline):
        grandchildren = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        os.close(lifeline)
        assert process.wait(300) == -signal.SIGKILL
        _, left = psutil.wait_procs(grandchildren, timeout=300)
        assert left == []


PARENT = """
import os, subprocess, sys, time
lifeline, ours = os.pipe()
env = {**os.environ, "NEMO_GYM_LIFELINE_FD": str(lifeline)}
command = [sys.executable, "-m", "nemo_gym._servers.processes.entrypoint", "app.py"]
child = subprocess.Popen(command, env=env, pass_fds=[lifeline], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
fork = os.fork()
if not fork:
    time.sleep(1000)  # holds the parent's end of the pipe
print(child.pid, fork, flush=True)
time.sleep(1000)
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_it_ends_with_its_parent_although_a_fork_of_the_parent_lives_on(tmp_path):
    (tmp_path / "app.py").write_text("print('up', flush=True)\nimport time; time.sleep(1000)")
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    started, fork = (psutil.Process(int(pid)) for pid in parent.stdout.readline().split())
    try:
        parent.kill()
        parent.wait()
        until(lambda: not started.is_running() or started.status() == psutil.STATUS_ZOMBIE, "the child has ended")
        assert fork.is_running()
    finally:
        parent.stdout.close()
        for process in (fork, started):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def test_a_descriptor_is_taken_once_and_not_inherited():
    fd = os.dup(0)
    os.set_inheritable(fd, True)
    environment = {READY_FD: str(fd)}
    assert take_fd(environment, READY_FD) == fd
    assert not os.get_inheritable(fd)
    assert take_fd(environment, READY_FD) is None
    os.close(fd)


def test_saying_ready_writes_one_byte_and_closes_the_pipe():
    ours, theirs = os.pipe()
    say_ready(theirs)
    assert os.read(ours, 10) == b"1"
    os.close(ours)
