# SPDX-License-Identifier: Apache-2.0
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.cli.completion import SHELLS, candidates
from tests.support.catalog import write_benchmark, write_config

BIN = Path(sys.executable).parent


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_benchmark(tmp_path, "tiny")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "among"),
    [
        ([""], {"list", "env", "eval", "search", "--help"}),
        (["bench", "p"], {"plan"}),
        (["bench", "plan", "--lat"], {"--latency"}),
        (["--v"], {"--version", "--verbose"}),
        (["-v", "e"], {"env", "eval"}),
        (["env", "st"], {"start", "status"}),
        (["env", "start", "--model"], {"--model", "--model-url", "--model-type"}),
        (["env", "start", "--resources-server", "example_m"], {"example_multi_step"}),
        (["eval", "run", "--benchmark", ""], {"tiny"}),
        (["eval", "run", "--benchmark=t"], {"--benchmark=tiny"}),
        (["env", "start", "--model-type", "vllm"], {"vllm_model", "vllm_model/vllm_model_for_training"}),
        (["list", "benchmarks", ""], {"tiny"}),
        (["list", "agents", "simple"], {"simple_agent"}),
        (["list", "models", "rep"], {"replay_model"}),
        (["list", "resources-servers", "example_s"], {"example_session_state_mgmt"}),
        (["list", "environments", "--status", ""], {"experimental", "no-manifest"}),
        (["list", "environments", "--from", "ver"], {"verifiers", "verifiers_v0"}),
        (["import", "ge"], {"gem:"}),
        (["import", "gem:x", "--re"], {"--requirement"}),
        (["search", ""], {"benchmarks", "resources-servers"}),
        (["--install-completion", ""], set(SHELLS)),
    ],
)
def test_what_can_come_next(words, among):
    found = set(candidates(words))
    assert among <= found
    assert all(name.startswith(words[-1]) for name in found)


@pytest.mark.parametrize("words", [["nonsense", ""], ["env", "nonsense", ""], ["eval", "run", "--input", ""]])
def test_where_there_is_no_answer_the_shell_is_left_to_its_files(words):
    assert candidates(words) == {}


def test_a_search_dir_on_the_line_is_looked_in(root, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    write_config(other, "benchmarks/mine/config.yaml", "{}")
    assert set(candidates(["eval", "run", "--search-dir", str(other), "--benchmark", "mi"])) == {"mine"}


def test_bash_completes_with_the_script_it_is_given():
    script = f"""
        PATH={BIN}:$PATH
        source <(gym --show-completion bash)
        COMP_WORDS=(gym env start --resources-server example_mu); COMP_CWORD=4
        _gym_completion
        echo "${{COMPREPLY[*]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "example_multi_step\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_is_correct_in_its_syntax(shell, tmp_path, gym):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(gym("--show-completion", shell).out)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


@pytest.mark.parametrize(("shell", "startup"), [("bash", ".bashrc"), ("zsh", ".zshrc")])
def test_installing_twice_is_installing_once_and_keeps_what_is_there(shell, startup, tmp_path, monkeypatch, gym):
    for name in ("XDG_DATA_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / startup).write_text("alias x=y")
    for _ in range(2):
        assert gym("--install-completion", shell).code == 0
    own, line = (tmp_path / startup).read_text().splitlines()
    script = tmp_path / ".local/share/nemo-gym" / f"completion.{shell}"
    assert (own, script.is_file(), str(script) in line) == ("alias x=y", True, True)


def test_fish_finds_its_completions_by_itself(tmp_path, monkeypatch, gym):
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert gym("--install-completion").code == 0
    assert {path.name for path in (tmp_path / ".config/fish/completions").iterdir()} == {"gym.fish", "ng.fish"}


def test_a_shell_that_is_not_known_is_named_with_those_that_are(monkeypatch, gym):
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert (gym("--show-completion").code, "bash|zsh|fish" in gym("--show-completion").err) == (2, True)
    assert "'zhs' is not one of bash, zsh, fish. Did you mean 'zsh'?" in gym("--install-completion", "zhs").err


def test_completing_loads_nothing_heavy():
    heavy = "{'pydantic', 'omegaconf', 'yaml', 'rich', 'fastapi'}"
    run = "import sys; from nemo_gym.cli.main import main; main(['--complete', 'bash', '1', 'e'])"
    code = f"{run}; print({heavy} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == ["env", "eval", "export", "set()"]
