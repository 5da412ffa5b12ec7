# SPDX-License-Identifier: Apache-2.0
"""RunHelper, in programs that drive it as a training framework does."""

import os
from textwrap import dedent

import psutil
import pytest

from nemo_gym._util.reachable_addresses import reachable_host
from nemo_gym.cli.env import RunHelper
from nemo_gym.server_utils import ServerInstanceDisplayConfig
from tests.support import warm_start
from tests.support.small_servers import write_server

pytestmark = pytest.mark.slow

PREAMBLE = """
import asyncio, os, signal, socket, threading, time, urllib.request, warnings
import psutil
from omegaconf import OmegaConf
from nemo_gym.cli.env import RunHelper
from nemo_gym.global_config import GlobalConfigDictParserConfig

warnings.simplefilter("error", ResourceWarning)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def config(*names, **more):
    given = {"config_paths": [f"resources_servers/{name}/configs/{name}.yaml" for name in names],
             "head_server": {"port": free_port()}} | more
    return GlobalConfigDictParserConfig(
        initial_global_config_dict=OmegaConf.create(given), skip_load_from_cli=True, skip_load_from_dotenv=True)


def answers(helper):
    statuses = dict(helper.check_http_server_statuses())
    assert set(statuses.values()) == {"success"}, statuses
    return sorted(statuses)


def nothing_is_left(own_threads=1):
    assert psutil.Process().children() == []
    listening = [c for c in psutil.Process().net_connections("tcp") if c.status in ("LISTEN", "NONE")]
    assert listening == [], listening
    assert threading.active_count() == own_threads, threading.enumerate()
    assert os.listdir(os.environ["NEMO_GYM_RUN_TOKEN_DIR"]) == []


"""


@pytest.fixture
def run_program(tmp_path):
    """Run a program that has servers `here` (in its process), `own` (in one of its own) and `broken`."""
    write_server(tmp_path, "here", port=None)
    write_server(tmp_path, "own", port=None, placement="process")
    write_server(tmp_path, "broken", port=None, on_import="raise ValueError('a broken import')")
    (tmp_path / "cwd").mkdir()

    def run(program: str) -> str:
        environment = {**os.environ, "NEMO_GYM_EXTRA_ROOTS": str(tmp_path)}
        source = PREAMBLE + dedent(program)
        done = warm_start.run([], program=source, cwd=tmp_path / "cwd", env=environment, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_a_plain_script_starts_servers_and_stops_them_as_often_as_it_likes(run_program):
    said = run_program("""
        helper = RunHelper()
        helper.shutdown()
        helper.poll()
        for names in (["here", "own"], ["here"]):
            helper.start(config(*names))
            assert answers(helper) == names
            assert [server.process_name for server in helper.server_instances] == names
            helper.poll()
            helper.display_server_instance_info()
            helper.wait_for_spinup()
            helper.shutdown()
            helper.shutdown()
            helper.poll()
            nothing_is_left()
        print("done")
    """)
    assert said == "done\n"


@pytest.mark.thorough
def test_nested_folders_are_served_in_this_process_and_in_their_own(tmp_path, run_program):
    write_server(tmp_path, "group/inner", port=None, on_import="from resources_servers.group import shared")
    write_server(tmp_path, "group/apart", port=None, placement="process")
    (tmp_path / "resources_servers/group/shared.py").write_text("")
    run_program("""
        helper = RunHelper()
        nested = [f"resources_servers/group/{name}/configs/{name}.yaml" for name in ("inner", "apart")]
        helper.start(config(config_paths=nested))
        assert answers(helper) == ["apart", "inner"]
        helper.shutdown()
    """)


def test_trainers_find_the_head_server_at_the_client_of_the_helper(run_program):
    run_program("""
        helper = RunHelper()
        assert helper._server_client is None
        given = config("here")
        helper.start(given)
        head = helper._server_client.head_server_config
        assert head.port == given.initial_global_config_dict.head_server.port
        assert helper._server_client.poll_for_status("here") == "success"
        helper.shutdown()
    """)


@pytest.mark.thorough
def test_a_running_event_loop_is_no_obstacle(run_program):
    run_program("""
        async def main():
            direct, threaded = RunHelper(), RunHelper()
            direct.start(config("own"))
            assert answers(direct) == ["own"]
            direct.shutdown()
            await asyncio.to_thread(threaded.start, config("here", "own"))
            url = threaded.server_instances[0].url

            def fetch():
                with urllib.request.urlopen(url) as reply:
                    return reply.status

            assert await asyncio.gather(*(asyncio.to_thread(fetch) for _ in range(5))) == [200] * 5
            assert await asyncio.to_thread(answers, threaded) == ["here", "own"]
            await asyncio.to_thread(threaded.shutdown)

        asyncio.run(main())
        nothing_is_left()
    """)


@pytest.mark.thorough
def test_a_thread_may_start_servers_and_another_stop_them(run_program):
    run_program("""
        helper = RunHelper()

        def in_thread(call, *arguments):
            thread = threading.Thread(target=call, args=arguments)
            thread.start()
            thread.join()

        in_thread(helper.start, config("own", "here"))
        assert answers(helper) == ["here", "own"]
        in_thread(helper.shutdown)
        nothing_is_left()
    """)


def test_a_death_is_raised_by_poll_and_by_run_forever_and_costs_the_others_nothing(run_program):
    run_program("""
        helper = RunHelper()
        for tell in ("poll", "run_forever"):
            helper.start(config("own", "here"))
            (pid,) = (server.pid for server in helper.server_instances if server.process_name == "own")
            os.kill(pid, signal.SIGKILL)
            try:
                if tell == "run_forever":
                    helper.run_forever()
                else:
                    while True:
                        helper.poll()
                        time.sleep(0.01)
            except RuntimeError as error:
                assert "server 'own' was killed by SIGKILL" in str(error), error
            else:
                raise AssertionError("the death was not raised")
            if tell == "poll":
                assert dict(helper.check_http_server_statuses()) == {"own": "connection_error", "here": "success"}
            helper.shutdown()
            nothing_is_left()
    """)


@pytest.mark.thorough
def test_a_start_that_fails_leaves_nothing_and_the_helper_can_start_again(run_program):
    run_program("""
        helper = RunHelper()
        try:
            helper.start(config("own", "here", "broken"))
        except RuntimeError as error:
            assert "ValueError: a broken import" in str(error), error
        else:
            raise AssertionError("the failure was not raised")
        nothing_is_left()
        helper.start(config("own"))
        try:
            helper.start(config("here"))
        except RuntimeError as error:
            assert "already running" in str(error), error
        else:
            raise AssertionError("started twice")
        assert answers(helper) == ["own"]
        helper.shutdown()
        nothing_is_left()
    """)


def test_a_signal_ends_run_forever_without_an_error(run_program):
    run_program("""
        helper = RunHelper()
        helper.start(config("own", "here"))
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        helper.run_forever()
        nothing_is_left()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    """)


@pytest.mark.thorough
def test_a_program_that_just_ends_takes_its_servers_along(run_program, tmp_path):
    pid = run_program("""
        helper = RunHelper()
        helper.start(config("own"))
        print(helper.server_instances[0].pid)
    """)
    assert not psutil.pid_exists(int(pid))
    assert list((tmp_path / "run-tokens").iterdir()) == []


@pytest.mark.thorough
def test_servers_that_block_the_event_loop_are_left_behind_with_a_word(run_program, tmp_path):
    blocking = "async def block():\n    os.environ['BLOCKED'] = '1'\n    time.sleep(1000)\napp.get('/block')(block)"
    write_server(tmp_path, "blocking", port=None, on_setup=blocking)
    run_program("""
        from nemo_gym.cli import render
        from nemo_gym.cli.env import run_helper

        said = []
        render.note = said.append
        run_helper._STOP_TIMEOUT_S = run_helper._THREAD_TIMEOUT_S = 0.5
        helper = RunHelper()
        helper.start(config("blocking", "own"))
        url = helper.server_instances[0].url
        threading.Thread(target=urllib.request.urlopen, args=(f"{url}/block",), daemon=True).start()
        while "BLOCKED" not in os.environ:
            time.sleep(0.01)
        helper.shutdown()
        assert helper.hangs
        assert "placement: process" in said[-1], said
    """)


def test_servers_for_every_address_are_shown_where_others_find_them(monkeypatch, capsys):
    servers = [
        ServerInstanceDisplayConfig(process_name=name, server_type="t", name="i", host=host, port=80, pid=pid)
        for name, host, pid in (("mine", "127.0.0.1", 1), ("open", "0.0.0.0", 1), ("theirs", "10.1.1.1", None))
    ]
    monkeypatch.setattr(RunHelper, "server_instances", servers)
    RunHelper().display_server_instance_info()
    assert capsys.readouterr().err.splitlines() == [
        "[1] mine (t/i) http://127.0.0.1:80",
        f"[2] open (t/i) http://{reachable_host('0.0.0.0')}:80",
        "[3] theirs (t/i) http://10.1.1.1:80",
    ]
