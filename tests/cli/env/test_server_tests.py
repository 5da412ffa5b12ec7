# SPDX-License-Identifier: Apache-2.0
"""`gym env test` runs the suites of servers and tells how they fared; its exit codes can be relied on."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nemo_gym
from nemo_gym._authoring.server_suites import Suite, SuiteResult, run_suite
from nemo_gym.cli import legacy
from nemo_gym.cli.env import server_folders, server_tests
from nemo_gym.cli.main import run_command

PASSING = "def test_one():\n    assert True\n"
FAILING = "def test_one():\n    assert 'spam' == 'eggs'\n"


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder in which only the servers of the test are seen."""
    monkeypatch.setattr(sys, "argv", ["gym"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(server_folders, "component_search_roots", lambda: [tmp_path])
    without_plugins(monkeypatch)
    return tmp_path


def without_plugins(monkeypatch, *but: str) -> None:
    """Loading every plugin of this environment takes longer than everything else that a suite does."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", ",".join(but))


def write_server(
    here: Path, name: str, tests: str | None = PASSING, kind: str = "responses_api_agents", **files: str
) -> Path:
    folder = here / kind / name
    (folder / "tests").mkdir(parents=True)
    if tests is not None:
        (folder / "tests" / "test_app.py").write_text(tests)
    for path, text in {"README.md": name, **files}.items():
        (folder / path.replace("__", "/")).parent.mkdir(exist_ok=True)
        (folder / path.replace("__", "/")).write_text(text)
    return folder


def outcome(capsys, *words: str) -> tuple[int, dict]:
    code = run_command(["env", "test", "--json", *words] if words else ["env", "test", "--all", "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("tests", "code", "verdict"),
    [
        (PASSING, 0, "passed"),
        (FAILING, 1, "failed"),
        ("import no_such_module\n", 2, "failed"),
        ("", 5, "missing"),
        ("import os\nos._exit(77)\n", 77, "unrecognised"),
    ],
)
def test_one_server_gives_the_exit_code_of_pytest(here, capsys, tests, code, verdict):
    write_server(here, "mine", tests)
    given, result = outcome(capsys, "+entrypoint=responses_api_agents/mine")
    assert (given, result["exit_code"], result["verdict"]) == (code, code, verdict)


@pytest.mark.parametrize("files", [{}, {"requirements.txt": ""}])
def test_without_pytest_it_says_how_to_get_it(here, capsys, monkeypatch, files):
    monkeypatch.setattr(server_tests, "find_spec", lambda name: None)
    write_server(here, "mine", **files)
    assert run_command(["env", "test", "mine"]) == 1
    said = capsys.readouterr().err
    assert "the tests of responses_api_agents/mine need pytest, which is not installed in its environment" in said
    assert "\nhint: pip install 'nemo-gym[dev]'" in said
    assert "Traceback" not in said


def test_a_suite_sees_its_own_folder_its_root_and_the_other_servers(here, capsys, monkeypatch):
    without_plugins(monkeypatch, "pytest_asyncio.plugin")
    app = "from simple import VALUE\n"
    tests = (
        "import os\nimport helper, responses_api_agents.mine.app\nimport responses_api_agents.simple_agent.app\n"
        "async def test_it():\n    assert os.path.basename(os.getcwd()) == 'mine'\n"
    )
    write_server(here, "mine", tests, **{"app.py": app, "simple.py": "VALUE = 1\n", "helper.py": ""})
    code, result = outcome(capsys, "mine")
    assert code == 0, result["output"]
    assert result["summary"].startswith("1 passed")


def test_one_server_prints_as_it_goes(here):
    write_server(here, "mine", FAILING)
    done = subprocess.run(
        [sys.executable, "-m", "nemo_gym.cli.main", "env", "test", "mine"],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "assert 'spam' == 'eggs'" in done.stdout


def test_all_servers_are_tested_shown_in_order_and_counted(here, capsys):
    write_server(here, "b_fails", FAILING)
    write_server(here, "a_passes")
    write_server(here, "c_has_none", None)
    write_server(here, "d_is_odd", "import os\nos._exit(9)\n")
    assert run_command(["env", "test"]) == 1
    out, err = capsys.readouterr()
    order = [out.index(f"responses_api_agents/{name}") for name in ("a_passes", "b_fails", "c_has_none", "d_is_odd")]
    assert order == sorted(order)
    assert "assert 'spam' == 'eggs'" in out
    assert "passed: 1 / 4 (25%)" in out
    assert "unrecognised: 1 / 4 (25%)" in out
    assert "gym env test +entrypoint=responses_api_agents/b_fails" in err


def test_all_passing_is_a_success_and_the_same_as_json(here, capsys):
    write_server(here, "a")
    write_server(here, "b", kind="responses_api_models")
    code, result = outcome(capsys)
    assert (code, result["counts"]["passed"]) == (0, 2)
    assert [one["entrypoint"] for one in result["servers"]] == ["responses_api_agents/a", "responses_api_models/b"]


def test_a_server_without_a_readme_is_not_tested_which_can_be_made_a_failure(here, capsys):
    write_server(here, "a")
    (write_server(here, "b") / "README.md").unlink()
    assert outcome(capsys)[0] == 0
    code, result = outcome(capsys, "--all", "+fail_on_total_and_test_mismatch=true")
    assert (code, result["without_readme"]) == (1, ["responses_api_agents/b"])


@pytest.mark.thorough
def test_a_server_whose_environment_cannot_be_built_does_not_keep_others_from_being_tested(here, capsys):
    write_server(here, "a", **{"requirements.txt": "this is -- not a requirement\n"})
    write_server(here, "b", **{"requirements.txt": "no-such-package-anywhere @ file:///no/such/file.whl\n"})
    write_server(here, "c")
    code, result = outcome(capsys, "--all", f"++cache_dir={here / 'cache'}")
    assert (code, [one["verdict"] for one in result["servers"]]) == (1, ["not run", "not run", "passed"])


def test_shards_share_the_servers_out(here, capsys):
    for name in "abc":
        write_server(here, name)
    names = [
        [
            one["entrypoint"][-1]
            for one in outcome(capsys, "--all", "+num_shards=2", f"+shard_index={index}")[1]["servers"]
        ]
        for index in (0, 1)
    ]
    assert names == [["a", "c"], ["b"]]


# --- data -------------------------------------------------------------------------------------------------------------


def server_with_data(here: Path, rows: int = 5, counted: int = 5) -> Path:
    lines = '{"a": 1}\n' * rows
    return write_server(
        here,
        "env",
        kind="resources_servers",
        **{
            "app.py": "",
            "data__example.jsonl": lines,
            "data__example_metrics.json": json.dumps({"Number of examples": counted}),
            "data__example_rollouts.jsonl": lines,
        },
    )


def test_good_data_passes_with_the_tests(here, capsys):
    server_with_data(here)
    code, result = outcome(capsys, "--resources-server", "env", "+should_validate_data=true")
    assert (code, result["data_problems"]) == (0, [])


def test_every_fault_of_the_data_is_named_with_the_command_that_mends_it(here, capsys):
    folder = server_with_data(here, rows=4, counted=3)
    (folder / "data" / "train_metrics_conflict.json").write_text("{}")
    code, result = outcome(capsys, "--resources-server", "env", "--validate-data")
    assert (code, result["exit_code"], len(result["data_problems"])) == (1, 0, 4)
    assert all("hint: " in problem for problem in result["data_problems"])
    assert any("has 4 rows, not 5" in problem for problem in result["data_problems"])


def test_data_is_looked_at_for_one_server_only_if_asked_and_for_all_always(here, capsys):
    server_with_data(here, rows=4)
    assert outcome(capsys, "--resources-server", "env")[0] == 0
    assert outcome(capsys)[0] == 1


# --- the rest ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nope", "resources_servers/nope", "/abs/olute", "a/b/c", "../up"])
def test_a_server_that_is_not_there_is_a_usage_error(here, capsys, name):
    assert run_command(["env", "test", f"+entrypoint={name}"]) == 2
    assert repr(name) in capsys.readouterr().err


def test_json_without_a_name_is_a_usage_error_that_runs_no_suite(here, capsys):
    write_server(here, "mine", tests="def test_it():\n    open('was_run', 'w').close()\n")
    assert run_command(["env", "test", "--json"]) == 2
    assert "gym env test --all --json" in capsys.readouterr().err
    assert not list(here.rglob("was_run"))


def test_the_older_commands_do_the_same(here, capsys, monkeypatch):
    write_server(here, "mine")
    for command, words in (("ng_test", ["+entrypoint=responses_api_agents/mine"]), ("nemo_gym_test_all", [])):
        monkeypatch.setattr(sys, "argv", [command, *words, "+json=true"])
        assert legacy.run_alias() == 0
        assert "passed" in capsys.readouterr().out


def test_reports_go_where_ci_wants_them(here, capsys, monkeypatch):
    monkeypatch.setenv("GYM_CI_JUNIT_DIR", str(here / "reports"))
    write_server(here, "mine")
    assert outcome(capsys, "mine")[0] == 0
    assert (here / "reports" / "responses_api_agents__mine.xml").is_file()


def test_a_server_of_an_extra_root_is_found(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gym"])
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    without_plugins(monkeypatch)
    write_server(tmp_path, "of_an_extra_root")
    nemo_gym._make_servers_importable()
    assert outcome(capsys, "of_an_extra_root")[0] == 0


def test_a_suite_that_takes_too_long_is_ended_with_all_it_started(tmp_path):
    tests = "import subprocess, sys\ndef test_it():\n    subprocess.run([sys.executable, '-c', MARK])\n"
    (tmp_path / "test_slow.py").write_text(tests.replace("MARK", "'import time; time.sleep(1000)  # nemo-gym-slow'"))
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    suite = Suite("slow", tmp_path, Path(sys.executable), environment, ["-p", "no:cacheprovider"], timeout_s=2)
    result = asyncio.run(run_suite(suite))
    assert (result.verdict, "after 2 s" in result.output) == ("late", True)
    left = subprocess.run(["pgrep", "-f", "nemo-gym-slo[w]"], capture_output=True, check=False)
    assert left.stdout == b""


@pytest.mark.parametrize(
    ("output", "summary"),
    [
        ("...\n===== 4 passed in 0.31s =====\n", "4 passed in 0.31s"),
        ("\x1b[32m== \x1b[1m1 failed\x1b[0m, 3 passed in 12.00s ==\x1b[0m", "1 failed, 3 passed in 12.00s"),
        ("no tests ran in 0.01s", "no tests ran in 0.01s"),
        ("a crash", ""),
    ],
)
def test_the_last_line_of_pytest_is_the_summary(output, summary):
    assert SuiteResult("x", 0, 0.0, output).summary == summary


@pytest.mark.thorough
@pytest.mark.slow
def test_ctrl_c_ends_the_suites_too(here):
    marker = here / "started"
    write_server(here, "slow", f"import pathlib, time\npathlib.Path({str(marker)!r}).touch()\ntime.sleep(1000)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "nemo_gym.cli.main", "env", "test", "slow"],
        cwd=here,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A run of these tests in the background ignores the signal, which all that it starts would do too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        while not marker.exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 130
    finally:
        process.kill()
    left = subprocess.run(["pgrep", "-f", f"{here}.*pytes[t]"], capture_output=True, check=False)
    assert left.stdout == b""
