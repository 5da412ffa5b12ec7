# SPDX-License-Identifier: Apache-2.0
"""Servers are started, watched and stopped: real processes that are really killed, and nothing is left of them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from nemo_gym import PARENT_DIR
from tests.support.small_servers import gym, is_free, start, until, write_server

pytestmark = pytest.mark.slow

PLACEMENTS = pytest.mark.parametrize("placement", ["process", "inline"])
HANG_IN_REQUEST = """
async def hang():
    for number in range(1, 31):
        print("line", number, flush=True)
    await asyncio.sleep(1000)
app.get("/hang")(hang)
"""


@pytest.fixture
def run_files(tmp_path) -> Path:
    return tmp_path / "run-tokens"


def remaining(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []


def call_in_background(port: int, path: str) -> None:
    def call() -> None:
        with suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=300)

    threading.Thread(target=call, daemon=True).start()


def get(port: int, path: str = "/", **headers: str):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.loads(response.read())


# --- death ------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_server_killed_in_the_middle_of_a_request_ends_the_run_and_is_named(tmp_path, run_files):
    port = write_server(tmp_path, "victim", on_setup=HANG_IN_REQUEST, placement="process")
    other = write_server(tmp_path, "other", placement="process")
    here = write_server(tmp_path, "here")
    with start(tmp_path, "victim", "other", "here") as run:
        run.wait_until_ready()
        assert len(run.tree) == 3
        pid = {server["process_name"]: server["pid"] for server in get(run.head_port, "/server_instances")}["victim"]
        call_in_background(port, "/hang")
        run.wait_until_said("(victim) line 30")
        os.kill(pid, signal.SIGKILL)
        assert run.wait() == 1
        run.wait_until_nothing_is_left(port, other, here)
    message = run.said[run.said.index("Error: server 'victim' was killed by SIGKILL") :]
    assert message.splitlines()[1:] == ["its last lines:", *(f"  line {number}" for number in range(11, 31))]
    assert remaining(run_files) == []


@pytest.mark.thorough
def test_when_the_supervisor_is_killed_everything_it_started_goes_with_it(tmp_path):
    """Also what a server has started, even as the leader of a session of its own."""
    grandchildren = "\n".join(
        f"subprocess.Popen(['sleep', '1000'], start_new_session={flag})" for flag in (True, False)
    )
    port = write_server(tmp_path, "parent", on_setup=grandchildren, placement="process")
    two = write_server(tmp_path, "two", placement="process", num_workers=2)
    here = write_server(tmp_path, "here")
    with start(tmp_path, "parent", "two", "here", fresh=True) as run:
        run.wait_until_ready()
        assert len(run.tree) == 1 + 1 + 2 + 1 + 2
        run.kill(signal.SIGKILL)
        run.wait()
        run.wait_until_nothing_is_left(port, two, here)


def test_a_supervisor_killed_while_servers_start_leaves_nothing(tmp_path):
    port = write_server(tmp_path, "slow", on_import="print('importing'); time.sleep(1000)", placement="process")
    with start(tmp_path, "slow") as run:
        run.wait_until_said("(slow) importing")
        run.kill(signal.SIGKILL)
        run.wait()
        run.wait_until_nothing_is_left(port)


# --- signals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_stops_everything_and_is_no_failure(tmp_path, run_files, number):
    left_group = "subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    own = write_server(tmp_path, "own", on_setup=HANG_IN_REQUEST + left_group, placement="process")
    here = write_server(tmp_path, "here", on_setup=HANG_IN_REQUEST)
    with start(tmp_path, "own", "here") as run:
        run.wait_until_ready()
        assert len(remaining(run_files)) == 2, "the run token and the config of the run"
        for name, port in (("own", own), ("here", here)):
            call_in_background(port, "/hang")
            run.wait_until_said(f"({name}) line 30")
        run.kill(number)
        assert run.wait() == 0
        run.wait_until_nothing_is_left(own, here)
    assert run.lines[-1] == "NeMo Gym finished!"
    assert "Traceback" not in run.said
    assert remaining(run_files) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_while_servers_start_stops_them_too(tmp_path, run_files, number):
    slow = "print('importing'); time.sleep(1000)"
    ports = [write_server(tmp_path, name, on_import=slow, placement=name) for name in ("inline", "process")]
    with start(tmp_path, "inline", "process") as run:
        for name in ("inline", "process"):
            run.wait_until_said(f"({name}) importing")
        run.kill(number)
        assert run.wait() == 130
        run.wait_until_nothing_is_left(*ports)
    assert "stopped before the servers were ready" in run.said
    assert "Traceback" not in run.said
    assert remaining(run_files) == []


@pytest.mark.thorough
def test_a_hangup_that_is_ignored_stays_ignored(tmp_path):
    write_server(tmp_path, "here")
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    with start(tmp_path, "here", fresh=True, **ignore) as run:
        run.wait_until_ready()
        run.kill(signal.SIGHUP)
        assert get(run.head_port) == {"status": "ok"}
        run.kill(signal.SIGTERM)
        assert run.wait() == 0


@pytest.mark.thorough
def test_a_thread_in_which_a_server_hangs_does_not_keep_the_process_alive(tmp_path, run_files):
    stuck = "def stuck():\n    print('stuck', flush=True)\n    time.sleep(1000)\napp.get('/stuck')(stuck)"
    in_thread = "async def lost():\n    await asyncio.to_thread(stuck)\napp.get('/lost')(lost)"
    port = write_server(tmp_path, "here", on_setup=f"{stuck}\n{in_thread}")
    with start(tmp_path, "here") as run:
        run.wait_until_ready()
        call_in_background(port, "/stuck")
        call_in_background(port, "/lost")
        until(lambda: run.said.count("(here) stuck") == 2, "both hang")
        run.kill()
        assert run.wait() == 0
        run.wait_until_nothing_is_left(port)
    assert run.lines[-1] == "NeMo Gym finished!"
    assert remaining(run_files) == []


# --- servers that do not start ----------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_servers_that_hang_at_start_are_named_with_what_they_said(tmp_path, run_files):
    late = ("inline", "process")
    hang = "print('loading'); time.sleep(1000)"
    ports = [write_server(tmp_path, name, on_import=hang, placement=name) for name in late]
    fine = write_server(tmp_path, "fine", placement="process")
    with start(tmp_path, "fine", *late, overrides=["++server_startup_timeout_seconds=6"]) as run:
        assert run.wait() == 1
        run.wait_until_nothing_is_left(*ports, fine)
    for name in late:
        # On a slow machine it has said nothing yet when it is first waited for.
        assert re.search(f"still waiting for {name!r}; its last line: (loading|nothing printed yet)", run.said)
        assert f"server {name!r} was not ready within 6 s.\nits last lines:\n  loading\n" in run.said
    assert run.lines[-1].startswith("hint: ")
    assert "server_startup_timeout_seconds" in run.lines[-1]
    assert "Traceback" not in run.said
    assert remaining(run_files) == []


@pytest.mark.parametrize(
    ("on_import", "on_setup", "last_line"),
    [
        ("raise ValueError('a broken import')", "pass", "ValueError: a broken import"),
        ("import no_such_module", "pass", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("this is no Python", "pass", "SyntaxError: invalid syntax"),
        ("", "raise KeyError('a broken setup')", "KeyError: 'a broken setup'"),
    ],
)
@PLACEMENTS
def test_a_server_that_crashes_at_start_is_shown_with_its_traceback(
    tmp_path, run_files, placement, on_import, on_setup, last_line
):
    port = write_server(tmp_path, "broken", on_import=on_import, on_setup=on_setup, placement=placement)
    with start(tmp_path, "broken") as run:
        assert run.wait() == 1
        run.wait_until_nothing_is_left(port)
    how = "exited with code 1" if placement == "process" else "could not be loaded"
    message = run.said[run.said.index(f"Error: server 'broken' {how}.\nits last lines:\n") :]
    assert "app.py" in message
    told = [line.strip() for line in message.splitlines() if not line.strip().startswith("hint:")]
    assert told[-1] == last_line
    assert remaining(run_files) == []


@PLACEMENTS
def test_a_server_that_ends_by_itself_has_not_started(tmp_path, placement):
    port = write_server(tmp_path, "gone", on_import="print('bye'); sys.exit(0)", placement=placement)
    with start(tmp_path, "gone") as run:
        assert run.wait() == 1
        run.wait_until_nothing_is_left(port)
    assert "Error: server 'gone' exited with code 0" in run.said
    assert "(gone) bye" in run.said


FAILING_STARTUP = """
@asynccontextmanager
async def lifespan(app):
    raise OSError("the database is away")
    yield
app.router.lifespan_context = lifespan
"""


@PLACEMENTS
def test_a_server_whose_startup_fails_is_shown_with_its_traceback(tmp_path, placement):
    port = write_server(tmp_path, "broken", on_setup=FAILING_STARTUP, placement=placement)
    with start(tmp_path, "broken") as run:
        assert run.wait() == 1
        run.wait_until_nothing_is_left(port)
    message = run.said[run.said.index("Error: server 'broken' ") :]
    assert "OSError: the database is away" in message
    assert "exited with code 0" not in message


SLOW_STARTUP = """
@asynccontextmanager
async def lifespan(app):
    print("warming up", flush=True)
    while not os.path.exists(os.environ["MAY_START"]):
        await asyncio.sleep(0.02)
    print("warm", flush=True)
    yield
app.router.lifespan_context = lifespan
"""


def test_a_server_is_ready_only_when_its_startup_is_over(tmp_path):
    for name in ("inline", "process"):
        write_server(tmp_path, name, on_setup=SLOW_STARTUP.replace("MAY_START", f"{name}_MAY_START"), placement=name)
    may_start = {name: tmp_path / f"{name}-may-start" for name in ("inline", "process")}
    env = {f"{name}_MAY_START": str(path) for name, path in may_start.items()}
    with start(tmp_path, "inline", "process", env=env) as run:
        for name in may_start:
            run.wait_until_said(f"({name}) warming up")
        assert get(run.head_port) == {"status": "ok"}, "the head server is there first"
        assert get(run.head_port, "/server_instances") == []
        for name, path in may_start.items():
            assert "servers ready!" not in run.said
            path.touch()
            until(lambda name=name: f"({name}) warm" in run.lines, f"{name} is warm")
        run.wait_until_ready()
        run.kill()
        assert run.wait() == 0
    for name in may_start:
        assert run.said.index(f"({name}) warm\n") < run.said.index("servers ready!")


# --- ports ------------------------------------------------------------------------------------------------------------


@PLACEMENTS
def test_a_port_that_is_taken_is_told_with_who_has_it(tmp_path, run_files, placement):
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        port = foreign.getsockname()[1]
        write_server(tmp_path, "wants", port=port, placement=placement)
        fine = write_server(tmp_path, "fine", placement="process")
        with start(tmp_path, "fine", "wants") as run:
            assert run.wait() == 1
            run.wait_until_nothing_is_left(fine)
    assert f"server 'wants' cannot listen on 127.0.0.1:{port}: the port is taken" in run.said
    assert f"(pid {os.getpid()})" in run.said
    assert remaining(run_files) == []


@pytest.mark.thorough
def test_two_launches_at_once_get_different_ports(tmp_path):
    write_server(tmp_path, "one", port=None, placement="process")
    write_server(tmp_path, "two", port=None)
    narrow = ["++port_range_low=23450", "++port_range_high=23459"]
    with (
        start(tmp_path, "one", "two", overrides=narrow) as first,
        start(tmp_path, "one", "two", overrides=narrow) as next,
    ):
        for run in (first, next):
            run.wait_until_ready()
        ports = [server["port"] for run in (first, next) for server in get(run.head_port, "/server_instances")]
        assert len(set(ports)) == 4
        for run in (first, next):
            run.kill()
            assert run.wait() == 0


CLIENT = """
import sys
from nemo_gym.server_utils import ServerClient
print(ServerClient.load_from_global_config().global_config_dict.get("policy_api_key"))
"""


def key_seen_from_another_process(run) -> str:
    command = [sys.executable, "-c", CLIENT, f"++head_server.port={run.head_port}"]
    return subprocess.run(command, env=run.environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.thorough
def test_a_second_launch_on_the_same_head_port_leaves_the_first_alone(tmp_path):
    write_server(tmp_path, "here")
    other = write_server(tmp_path, "other", placement="process")
    with start(tmp_path, "here", overrides=["+policy_api_key=sk-first"]) as first:
        first.wait_until_ready()
        with start(tmp_path, "other", head_port=first.head_port) as second:
            assert second.wait() == 1
            until(lambda: not second.tree, "no process is left")
        assert f"server 'head_server' cannot listen on 127.0.0.1:{first.head_port}" in second.said
        assert f"(pid {first.process.pid})" in second.said
        assert is_free(other)
        assert key_seen_from_another_process(first) == "sk-first"


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_secrets_are_on_no_command_line_and_only_for_who_has_the_token(tmp_path):
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / "env.yaml").write_text("policy_api_key: sk-very-secret\nmax_output_tokens: 17\n")
    write_server(tmp_path, "own", placement="process")
    write_server(tmp_path, "two", placement="process", num_workers=2)
    with start(tmp_path, "own", "two", fresh=True) as run:
        run.wait_until_ready()
        tree = run.tree
        assert len(tree) == 5
        assert not any("sk-very-secret" in word for process in tree for word in process.cmdline())
        stranger = get(run.head_port, "/global_config_dict_yaml")
        assert "sk-very-secret" not in stranger
        assert "max_output_tokens: 17" in stranger
        assert "sk-very-secret" not in get(run.head_port, "/global_config_dict_yaml", **{"X-NeMo-Gym-Run-Token": "x"})
        assert key_seen_from_another_process(run) == "sk-very-secret"


# --- what a user sees -------------------------------------------------------------------------------------------------


def test_the_client_script_of_the_tutorial_asks_a_running_agent(tmp_path):
    root = Path(__file__).parents[2]
    replies = [{"tool_calls": [{"name": "get_weather", "arguments": {"city": "San Francisco"}}]}, "Take a coat."]
    (tmp_path / "replies.yaml").write_text(json.dumps(replies))
    script = f"++policy_model.responses_api_models.replay_model.script={tmp_path / 'replies.yaml'}"
    with start(tmp_path, "example_single_tool_call", overrides=["--model-type", "replay_model", script]) as run:
        run.wait_until_ready()
        assert len(run.tree) == 1, "light servers share one process"
        command = [sys.executable, "responses_api_agents/simple_agent/client.py", f"+head_server.port={run.head_port}"]
        asked = subprocess.run(command, cwd=root, env=run.environment, capture_output=True, text=True)
        assert asked.returncode == 0, asked.stderr
        items = json.loads(asked.stdout)
        assert [item["type"] for item in items] == ["function_call", "function_call_output", "message"]
        assert items[-1]["content"][0]["text"] == "Take a coat."


CHATTY = "async def hello():\n    print('hello from', self.config.name, flush=True)\napp.get('/hello')(hello)"


def test_lines_of_servers_carry_their_names(tmp_path):
    ports = [write_server(tmp_path, name, on_setup=CHATTY, placement=name) for name in ("inline", "process")]
    with start(tmp_path, "inline", "process") as run:
        run.wait_until_ready()
        for port in ports:
            get(port, "/hello")
        run.wait_until_said("(inline) hello from inline")
        run.wait_until_said("(process) hello from process")


@pytest.mark.thorough
def test_with_a_log_folder_every_server_has_a_file_of_its_own(tmp_path):
    ports = [write_server(tmp_path, name, on_setup=CHATTY, placement=name) for name in ("inline", "process")]
    logs = tmp_path / "logs"
    with start(tmp_path, "inline", "process", overrides=[f"++nemo_gym_log_dir={logs}"]) as run:
        run.wait_until_ready()
        for port in ports:
            get(port, "/hello")
        for name in ("inline", "process"):
            log = logs / f"{name}.log"  # made with the first line, which comes by another way than the answer
            line = f"hello from {name}\n"
            until(lambda log=log, line=line: log.exists() and log.read_text() == line, f"{name} is logged")
        run.kill()
        assert run.wait() == 0
    assert sorted(path.name for path in logs.iterdir()) == ["inline.log", "process.log"]
    assert "hello from" not in run.said


# --- dry run ----------------------------------------------------------------------------------------------------------


def dry(root: Path, *servers: str):
    return start(root, *servers, overrides=["+dry_run=true"], env={"UV_OFFLINE": "1"})


@pytest.mark.thorough
def test_a_dry_run_shows_where_servers_would_run_builds_environments_and_serves_nothing(tmp_path, run_files):
    mark = "open(os.path.join(os.environ['NEMO_GYM_EXTRA_ROOTS'].split(':')[0], '{}'), 'w').close()"
    write_server(tmp_path, "here", on_import=mark.format("here-was-loaded"), port=None)
    write_server(tmp_path, "own", on_import=mark.format("own-was-loaded"), placement="process")
    write_server(tmp_path, "unbuilt", on_import=mark.format("unbuilt-was-loaded"))
    (tmp_path / "resources_servers" / "unbuilt" / "requirements.txt").write_text("some-package-nobody-has==1.2.3\n")
    with dry(tmp_path, "here", "own", "unbuilt") as run:
        assert run.wait() == 1
        run.wait_until_nothing_is_left()
    words = {line.split()[0]: line.split() for line in run.lines[:3]}
    assert words["here"][1] == "inline"
    assert words["own"][1] == "process"
    assert words["unbuilt"][1] == "process"
    assert "some-package-nobody-has" in run.lines[2]
    assert run.lines[2].endswith("its environment is built first")
    assert "could not be built" in run.said
    assert run.lines[3] == "3 servers: 1 in one process with the head server, 2 in processes of their own"
    assert sorted(path.name for path in tmp_path.glob("*-was-loaded")) == ["here-was-loaded", "own-was-loaded"]
    assert remaining(run_files) == []


@pytest.mark.thorough
def test_a_dry_run_finds_all_broken_servers(tmp_path):
    write_server(tmp_path, "here", on_import="raise ValueError('broken here')")
    write_server(tmp_path, "own", on_import="raise ValueError('broken there')", placement="process")
    write_server(tmp_path, "fine", placement="process")
    with dry(tmp_path, "here", "own", "fine") as run:
        assert run.wait() == 1
        run.wait_until_nothing_is_left()
    assert "server 'here' could not be loaded" in run.said
    assert "ValueError: broken here" in run.said
    assert "server 'own' exited with code 1" in run.said
    assert "ValueError: broken there" in run.said
    assert "'fine' " not in run.said.replace("fine ", "")


# --- status -----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_status_of_a_run_shows_what_does_not_answer(tmp_path):
    write_server(tmp_path, "here")
    write_server(tmp_path, "own", placement="process")
    with start(tmp_path, "here", "own") as run:
        run.wait_until_ready()
        with gym(tmp_path, "env", "status", head_port=run.head_port) as status:
            assert status.wait() == 0
        assert status.lines[-2] == "2 servers found (2 healthy, 0 unhealthy)"
        (own,) = (process for process in run.tree if process.pid != run.process.pid)
        own.suspend()
        with gym(tmp_path, "env", "status", "--json", head_port=run.head_port) as status:
            assert status.wait() == 1
        own.resume()
    (line,) = status.lines
    servers = {server["process_name"]: server for server in json.loads(line)}
    assert servers["here"]["status"] == "success"
    assert servers["own"]["status"] == "timeout"
    assert servers["own"]["pid"] == own.pid
    assert " ".join(sorted(servers["own"])) == (
        "config_path dir_path entrypoint host name pid port process_name server_type start_time status "
        "uptime_seconds url"
    )


def test_without_a_run_the_status_says_so(tmp_path):
    with gym(tmp_path, "env", "status") as status:
        assert status.wait() == 0
    assert status.lines[-1] == "No NeMo Gym servers found running."
    with gym(tmp_path, "env", "status", "--json") as status:
        assert status.wait() == 0
    assert status.said == "[]"


@pytest.mark.thorough
def test_servers_named_like_built_in_ones_are_imported_whole_in_every_process(tmp_path):
    who = (
        "import resources_servers.mcqa.app as mcqa, resources_servers.string_match as built_in\n"
        "app.get('/who')(lambda: [mcqa.__file__, built_in.__path__[0]])"
    )
    ports = [
        write_server(tmp_path, "blackjack", on_setup=who, placement="inline"),
        write_server(tmp_path, "mcqa", on_setup=who, placement="process", num_workers=2),
    ]
    with start(tmp_path, "blackjack", "mcqa") as run:
        run.wait_until_ready()
        for port in ports:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/who") as answer:
                assert json.load(answer) == [
                    str(tmp_path / "resources_servers/mcqa/app.py"),
                    str(PARENT_DIR / "resources_servers/string_match"),
                ]
