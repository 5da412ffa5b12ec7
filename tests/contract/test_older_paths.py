# SPDX-License-Identifier: Apache-2.0
"""The command line as programs call it: how `main` ends, and names by the paths that older programs import."""

import importlib
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym import __version__, global_config
from nemo_gym._util.moved_names import MOVED
from nemo_gym.cli.legacy import main as legacy_main
from nemo_gym.cli.main import main
from tests.support.catalog import write_benchmark

# Older module, name, home.
OLDER_PATHS = [
    *(("benchmarks", name, "cli.eval") for name in ("list_benchmarks", "PrepareBenchmarkConfig", "prepare_benchmark")),
    ("reward_profile", "reward_profile", "cli.eval"),
    ("rollout_collection", "collect_rollouts", "cli.eval"),
    ("rollout_collection", "aggregate_rollouts", "cli.eval"),
    ("cli", "e2e_rollout_collection", "cli.eval"),
    ("dataset_orchestrator", "upload_jsonl_dataset_to_hf_cli", "cli.dataset"),
    ("dataset_orchestrator", "upload_jsonl_dataset_to_hf_and_delete_gitlab_cli", "cli.dataset"),
    ("dataset_orchestrator", "download_jsonl_dataset_from_hf_cli", "cli.dataset"),
    ("dataset_orchestrator", "delete_jsonl_dataset_from_gitlab_cli", "cli.dataset"),
    ("gitlab_utils", "upload_jsonl_dataset_cli", "cli.dataset"),
    ("gitlab_utils", "download_jsonl_dataset_cli", "cli.dataset"),
    ("prompt", "materialize_prompts_cli", "cli.dataset"),
    ("train_data_utils", "prepare_data", "cli.dataset"),
    *(("cli", name, "cli.env") for name in ("RunHelper", "RunConfig", "TestConfig", "TestAllConfig", "PipListConfig")),
    *(("cli", name, "cli.env") for name in ("run", "test", "test_all", "init_resources_server", "dump_config")),
    *(("cli", name, "cli.env") for name in ("status", "pip_list")),
    ("cli", "dev_test", "cli.dev"),
    ("cli", "VersionConfig", "cli.general"),
    ("cli", "version", "cli.general"),
    ("cli", "GlobalConfigDictParserConfig", "global_config"),
    ("cli_setup_command", "run_command", "cli.setup_command"),
    ("cli_setup_command", "setup_env_command", "cli.setup_command"),
]


@pytest.mark.parametrize(("older", "name", "home"), OLDER_PATHS)
def test_an_older_path_gives_the_same_object_and_warns(older: str, name: str, home: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = getattr(importlib.import_module(f"nemo_gym.{home}"), name)
    assert callable(found)
    module = importlib.import_module(f"nemo_gym.{older}")
    for _ in range(2):
        with pytest.warns(DeprecationWarning, match=f"`nemo_gym.{older}.{name}` has moved.*`nemo_gym.{home}`"):
            assert getattr(module, name) is found


def test_every_moved_name_is_pinned_here() -> None:
    assert len(OLDER_PATHS) == 33
    moved = {
        (module, name, home)
        for module, homes in MOVED.items()
        for home, names in homes.items()
        for name in names.split()
    }
    assert moved == {(f"nemo_gym.{module}", name, f"nemo_gym.{home}") for module, name, home in OLDER_PATHS}


@pytest.mark.parametrize("module", sorted(MOVED))
def test_a_name_that_never_was_is_an_attribute_error(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'no_such_name'"):
        getattr(importlib.import_module(module), "no_such_name")  # noqa: B009  the point is the lookup


def test_the_warning_points_at_whoever_imports(tmp_path: Path) -> None:
    script = tmp_path / "older.py"
    script.write_text("from nemo_gym.prompt import materialize_prompts_cli\nfrom nemo_gym.cli import version\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    warned = [line for line in done.stderr.splitlines() if "DeprecationWarning" in line]
    assert [line.partition(": DeprecationWarning")[0] for line in warned] == [f"{script}:1", f"{script}:2"]


def test_a_module_that_names_have_left_does_not_load_the_command_line() -> None:
    code = f"import sys, {', '.join(module for module in MOVED if module != 'nemo_gym.cli')}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "nemo_gym.cli" not in done.stdout.split()


@pytest.fixture
def started_with(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let this process have been started with other arguments."""
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
    return lambda *words: monkeypatch.setattr(sys, "argv", list(words))


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 1),
        (("env",), 1),
        (("env", "validate", "--config", "nowhere.yaml"), 1),
        (("list", "benchmarks", "no_such_benchmark"), 1),
        (("no_such_group",), 2),
        (("env", "start", "--no-such-flag"), 2),
        (("eval", "run", "--benchmark", "no_such_benchmark"), 2),
        (("dataset", "render"), 2),
    ],
)
def test_main_raises_its_exit_code(started_with: Any, words: tuple[str, ...], code: int) -> None:
    started_with("gym", *words)
    with pytest.raises(SystemExit) as raised:
        main()
    assert raised.value.code == code


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["list", "models", "--json"]])
def test_main_returns_nothing_when_all_is_well(started_with: Any, words: list[str]) -> None:
    started_with("gym")
    assert main(words) is None  # type: ignore[func-returns-value]


def test_a_legacy_command_raises_its_exit_code_too(started_with: Any) -> None:
    started_with("ng_run", "--no-such-flag")
    with pytest.raises(SystemExit) as raised:
        legacy_main()
    assert raised.value.code == 2


def test_an_unknown_benchmark_is_named_on_stdout(started_with: Any, capsys: pytest.CaptureFixture[str]) -> None:
    started_with("gym", "list", "benchmarks", "gsm8")
    with pytest.raises(SystemExit, match="1"):
        main()
    assert "Unknown benchmark 'gsm8'. Did you mean 'gsm8k'?" in capsys.readouterr().out


def test_two_servers_to_test_are_a_usage_error(started_with: Any, capsys: pytest.CaptureFixture[str]) -> None:
    started_with("gym", "env", "test", "example_multi_step", "--resources-server", "mcqa")
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "'example_multi_step' and 'resources_servers/mcqa' are both named" in capsys.readouterr().err


def test_a_moved_command_takes_its_words_from_the_process(
    started_with: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nemo_gym.cli.dataset import materialize_prompts_cli
    from nemo_gym.cli.env import dump_config
    from nemo_gym.cli.eval import list_benchmarks
    from nemo_gym.cli.general import version

    started_with("program", "+json=true")
    version()
    assert json.loads(capsys.readouterr().out)["nemo_gym"] == __version__

    write_benchmark(tmp_path, "tiny")
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    list_benchmarks()
    assert "tiny" in {one["name"] for one in json.loads(capsys.readouterr().out)}

    started_with("program", "+my_setting=17")
    dump_config()
    assert OmegaConf.create(capsys.readouterr().out).my_setting == 17

    monkeypatch.chdir(tmp_path)
    Path("raw.jsonl").write_text('{"question": "why?"}\n')
    Path("prompt.yaml").write_text("user: '{question}'\n")
    files = {"input_jsonl_fpath": "raw.jsonl", "prompt_config": "prompt.yaml", "output_jsonl_fpath": "out.jsonl"}
    started_with("program", *(f"+{key}={value}" for key, value in files.items()))
    materialize_prompts_cli()
    assert "why?" in Path("out.jsonl").read_text()


def test_a_moved_command_that_fails_exits(started_with: Any) -> None:
    from nemo_gym.cli.eval import reward_profile

    started_with("program", "+rollouts_jsonl_fpath=nowhere.jsonl")
    with pytest.raises(SystemExit, match="1"):
        reward_profile()
