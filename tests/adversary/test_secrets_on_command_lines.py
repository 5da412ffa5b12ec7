# SPDX-License-Identifier: Apache-2.0
"""A key that somebody types reaches the endpoint, and no other user, error message or run that comes later."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import BaseModel, ValidationError

from nemo_gym._config.problems import explain
from nemo_gym._servers import process_environment as environment
from nemo_gym._servers.processes import private_run_files as run_files
from nemo_gym.config_types import BaseRunServerInstanceConfig, WANDBConfig
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI

KEY = "sk-typed-0123456789"

BECOME_NOBODY = "os.setgid(65534); os.setuid(65534)"


@pytest.mark.fault(
    place="Command line",
    fault="A key is given as `--model-api-key`, as an override or inside a URL",
    outcome="The process list of the machine shows `****` before the command begins its work.",
)
@pytest.mark.parametrize(
    "drop_rights",
    [
        "",
        pytest.param(
            BECOME_NOBODY, marks=pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
        ),
    ],
)
def test_a_key_on_the_command_line_is_not_in_the_process_list(drop_rights):
    program = (
        "import ctypes, os, sys; import nemo_gym.cli.main as cli\n"
        f"{drop_rights}\n"
        "with cli.own_process(): code = cli.run_command(sys.argv[1:])\n"
        "print(open('/proc/self/cmdline').read(), sys.argv[3] if code == 2 else '')"
    )
    words = ["no-such-command", "--model-api-key", KEY, f"+policy_api_key={KEY}", f"https://u:{KEY}@host", "ünd=1"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    shown, _, copy = done.stdout.strip().rpartition(" ")
    assert shown.rstrip("\0").split("\0")[-5:] == [
        "--model-api-key",
        "****",
        "+policy_api_key=****",
        "https://****@host",
        "ünd=1",
    ]
    assert copy == KEY  # the command itself still has it
    assert KEY not in done.stderr


def test_a_script_that_calls_a_command_by_its_older_name_hides_its_keys_too():
    program = "from nemo_gym.cli.general import version; version(); print(open('/proc/self/cmdline').read())"
    words = [sys.executable, "-c", program, f"+policy_api_key={KEY}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "+policy_api_key=****" in done.stdout
    assert KEY not in done.stdout


@pytest.mark.fault(
    place="Command line",
    fault="A server with several workers is started by hand with a key among its words",
    outcome="Its workers get the key in a file that only their user can read, not on their command lines.",
)
def test_workers_do_not_get_the_key_on_their_command_line(monkeypatch):
    seen = {}

    def run(command, sock, count, *, environment, **_):
        path = Path(environment["NEMO_GYM_CONFIG_FILE"])
        seen.update(command=command, config=path.read_text(), mode=path.stat().st_mode & 0o777)
        sock.close()
        return 0

    monkeypatch.setattr(environment.workers, "run", run)
    monkeypatch.setattr(sys, "orig_argv", ["python", "app.py", f"+policy_api_key={KEY}", "+n=1"])
    where = SimpleNamespace(host="127.0.0.1", port=0, num_workers=2)
    assert environment.run_workers(where, "server", f"policy_api_key: {KEY}") == 0
    assert seen["command"] == [sys.executable, "app.py", "+policy_api_key=****", "+n=1"]
    assert (seen["config"], seen["mode"]) == (f"policy_api_key: {KEY}", 0o600)


# --- messages of pydantic ---------------------------------------------------------------------------------------------


class _Endpoint(BaseModel):
    api_key: int


class _ServerConfig(BaseRunServerInstanceConfig):
    api_key: int
    endpoint: _Endpoint
    retries: int


@pytest.mark.fault(
    place="Config",
    fault="The value of a key does not fit, or something beside it is missing",
    outcome="The message names the place and what it must be, without the value.",
)
def test_a_validation_error_does_not_show_the_value_of_a_key():
    given = {"api_key": KEY, "endpoint": {"api_key": KEY}, "retries": {"api_key": KEY, "n": 7}}
    with pytest.raises(ValidationError) as raised:
        _ServerConfig.model_validate(given)
    assert KEY not in str(raised.value)
    assert KEY not in repr(raised.value)
    told = explain(raised.value, given)
    assert KEY not in str(told)
    assert told["retries",] == "must be a whole number, not {'api_key': '****', 'n': 7}"


@pytest.mark.parametrize(
    "build", [lambda: WANDBConfig(wandb_api_key=[KEY]), lambda: NeMoGymAsyncOpenAI(base_url="http://h", api_key=[KEY])]
)
def test_our_own_settings_do_not_show_a_key_that_does_not_fit(build):
    with pytest.raises(ValidationError) as raised:
        build()
    assert KEY not in str(raised.value)


# --- run tokens -------------------------------------------------------------------------------------------------------


@pytest.mark.fault(
    place="Run token",
    fault="A launcher is killed with SIGKILL, and its process id is given to another process",
    outcome="The next launcher removes its token and its config file; those of living launchers stay.",
)
def test_the_next_launcher_removes_the_token_of_a_killed_one(tmp_path):
    program = "import os, sys; from pathlib import Path\n"
    program += "from nemo_gym._servers.processes import private_run_files\n"
    program += "private_run_files.create_token(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    killed = tmp_path / "head-127.0.0.1-1.token"
    subprocess.run([sys.executable, "-c", program, str(killed)], check=False)
    assert run_files.read_token(killed)
    reused = tmp_path / "head-127.0.0.1-2.token"
    machine, pid, started = run_files.name_owner().rsplit("-", 2)
    reused.write_text(f"token\n{machine}-{pid}-{int(started) - 1}\n")
    elsewhere, alive, older = (tmp_path / f"head-127.0.0.1-{port}.token" for port in (3, 4, 5))
    elsewhere.write_text("token\nanother-machine-1-1\n")
    alive_token = run_files.create_token(alive)
    older.write_text("token-of-an-older-version")
    new = tmp_path / "head-127.0.0.1-6.token"
    token = run_files.create_token(new)
    assert sorted(tmp_path.iterdir()) == [elsewhere, alive, older, new]
    assert (run_files.read_token(new), run_files.read_token(alive)) == (token, alive_token)
    assert new.stat().st_mode & 0o777 == 0o600
