# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys

import pytest

from nemo_gym import __version__
from nemo_gym.cli import legacy
from nemo_gym.cli.main import main


def run(*arguments: str, capsys) -> tuple[int, str, str]:
    code = main(list(arguments))
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


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (("evn",), "'env'"),
        (("env", "stat"), "'start'"),
        (("env", "start", "--modle", "x"), "'--model'"),
        (("env", "start", "--resources-server", "example_singel_tool_call"), "'example_single_tool_call'"),
    ],
)
def test_a_mistyped_word_is_a_usage_error_with_the_nearest_one(arguments, suggestion, capsys):
    code, _, err = run(*arguments, capsys=capsys)
    assert (code, suggestion in err) == (2, True)


def test_a_flag_without_its_value_is_a_usage_error(capsys):
    assert run("env", "start", "--model", capsys=capsys)[0] == 2


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


def test_a_legacy_command_names_its_replacement_and_runs_it(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/bin/ng_version", "+json=true"])
    assert legacy.main() == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["nemo_gym"] == __version__
    assert "`ng_version` is deprecated" in err
    assert "`gym --version`" in err


def test_an_unknown_legacy_command_fails(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/bin/ng_frobnicate"])
    assert legacy.main() == 1
    assert "ng_frobnicate" in capsys.readouterr().err


def test_help_loads_no_server_code():
    heavy = "{'fastapi', 'aiohttp', 'pydantic', 'omegaconf', 'hydra'}"
    code = (
        f"import sys; from nemo_gym.cli.main import main; main(['--help']); print(sorted({heavy} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"
