# SPDX-License-Identifier: Apache-2.0
import errno
import json
import os
import signal
import subprocess
import sys

import pytest

from nemo_gym import __version__
from nemo_gym.cli.command_table import COMMANDS, GROUPS
from nemo_gym.cli.flags import load
from nemo_gym.cli.main import run_command
from tests.support.catalog import write_benchmark


def run(*arguments: str, capsys) -> tuple[int, str, str]:
    code = run_command(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(autouse=True)
def own_argv(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gym"])


def test_help_lists_groups_and_commands(capsys):
    code, out, _ = run("--help", capsys=capsys)
    assert code == 0
    assert "env" in out
    assert "start" in out


@pytest.mark.parametrize("arguments", [(), ("env",)])
def test_no_command_prints_help_and_fails(arguments, capsys):
    code, out, _ = run(*arguments, capsys=capsys)
    assert (code, "usage:" in out) == (1, True)


def test_version_as_json_parses(capsys):
    code, out, _ = run("--version", "--json", capsys=capsys)
    facts = json.loads(out)
    assert (code, facts["nemo_gym"]) == (0, __version__)
    assert set(facts["system"]) == {"os", "platform", "architecture", "processor", "cpus", "memory_gb"}


def test_a_config_error_is_printed_without_a_traceback(capsys):
    code, out, err = run("env", "validate", "--config", "nowhere.yaml", capsys=capsys)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert "nowhere.yaml" in err
    assert "Traceback" not in err


def test_a_valid_config_needs_no_model(capsys):
    code, out, _ = run("env", "validate", "--resources-server", "example_single_tool_call", capsys=capsys)
    assert (code, out) == (0, "✓ Config is valid.\n")


def test_resolve_prints_the_config_as_the_servers_see_it_without_secrets(capsys):
    code, out, _ = run(
        "env",
        "resolve",
        "--resources-server",
        "example_single_tool_call",
        "--model-type",
        "openai_model",
        "+policy_model_name='a, b'",
        "+policy_base_url=http://x/v1",
        "+policy_api_key=sk-secret",
        capsys=capsys,
    )
    assert code == 0
    assert "sk-secret" not in out
    assert "policy_model_name: a, b" in out


def test_verbose_reaches_the_config_wherever_it_stands(capsys):
    words = ("env", "resolve", "--resources-server", "example_single_tool_call", "--model-type", "replay_model")
    for arguments in (("-v", *words), (*words, "--verbose"), (*words, "+verbose=true")):
        code, out, _ = run(*arguments, capsys=capsys)
        assert (code, "verbose: true" in out.splitlines()) == (0, True)


@pytest.mark.parametrize("arguments", [("+help=true",), ("env", "+h=true"), ("-h",), ("-v", "--help")])
def test_help_is_asked_for_in_many_ways(arguments, capsys):
    code, out, _ = run(*arguments, capsys=capsys)
    assert (code, out.startswith("usage: gym ")) == (0, True)


@pytest.mark.parametrize("arguments", [("--version", "--json"), ("--json", "--version"), ("--version", "+json=true")])
def test_the_version_as_json_in_any_order(arguments, capsys):
    assert json.loads(run(*arguments, capsys=capsys)[1])["nemo_gym"] == __version__


def test_every_command_can_be_loaded_and_shows_its_parameters(capsys):
    every = [*((name,) for name in COMMANDS), *((group, name) for group in GROUPS for name in GROUPS[group])]
    for words in every:
        code, out, _ = run(*words, "+help=true", capsys=capsys)
        assert (code, out.startswith("Displaying help for ")) == (0, True), words
    for command in [*COMMANDS.values(), *(command for group in GROUPS.values() for command in group.values())]:
        assert callable(load(command.implementation))


def test_a_reader_that_has_gone_is_no_error():
    gym = [sys.executable, "-m", "nemo_gym.cli.main", "list", "agents"]
    with subprocess.Popen(gym, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 1)


def test_an_interrupted_command_ends_with_130(tmp_path):
    write_benchmark(tmp_path, "slow", prepare="def prepare():\n    print('at work', flush=True)\n    input()")
    with subprocess.Popen(
        [sys.executable, "-m", "nemo_gym.cli.main", "eval", "prepare", "--benchmark", "slow"],
        env={**os.environ, "NEMO_GYM_EXTRA_ROOTS": str(tmp_path)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr.readline() == "at work\n"
        process.send_signal(signal.SIGINT)
        assert (process.wait(300), process.stderr.read()) == (130, "")


def test_what_the_system_refuses_is_named_without_a_traceback(capsys, monkeypatch):
    def refuse(overrides):
        raise PermissionError(errno.EACCES, "Permission denied", "/locked/file")

    monkeypatch.setattr("nemo_gym.cli.general.show_version", refuse)
    code, _, err = run("--version", capsys=capsys)
    assert (code, err.splitlines()[0]) == (1, "Error: '/locked/file': Permission denied")
    assert err.splitlines()[1].startswith("hint: ")


def test_a_mistake_of_ours_keeps_its_traceback(capsys, monkeypatch):
    def fail(overrides):
        raise ZeroDivisionError

    monkeypatch.setattr("nemo_gym.cli.general.show_version", fail)
    with pytest.raises(ZeroDivisionError):
        run("--version", capsys=capsys)


def test_help_loads_no_server_code():
    heavy = "{'fastapi', 'aiohttp', 'pydantic', 'omegaconf', 'hydra'}"
    code = (
        f"import sys; from nemo_gym.cli.main import main; main(['--help']); print(sorted({heavy} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"
