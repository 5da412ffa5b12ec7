# SPDX-License-Identifier: Apache-2.0
"""`gym view` and `ng_viewer` on the command line; the page itself is tested in tests/viewer."""

import importlib.util
import subprocess
import sys

import pytest

from nemo_gym._util.reachable_addresses import reachable_host
from nemo_gym._viewer.page.serve import listen
from nemo_gym.cli import legacy, view
from tests.viewer.browser import rows


@pytest.fixture
def served(monkeypatch):
    """What would be served, and where; nothing is."""
    seen = []
    monkeypatch.setattr(view, "import_page", lambda: None)
    monkeypatch.setattr(
        view,
        "serve",
        lambda shelf, listening, host, access: seen.append(
            ([file.name for file in shelf.files], listening.getsockname(), host, access)
        ),
    )
    return seen


@pytest.fixture
def run(tmp_path, monkeypatch):
    rows.write(tmp_path / "cwd" / "run.jsonl", rows.run(2, 2, seed=1, skill=0.5))


@pytest.mark.parametrize(
    "arguments",
    [
        ("run.jsonl", "--port", "0"),
        ("+jsonl_fpath=run.jsonl", "+server_port=0"),
        ("++jsonl_fpath=[run.jsonl]", "++server_port=0", "--host", "127.0.0.1", "--no-browser"),
    ],
)
def test_a_file_is_named_as_a_word_or_as_a_setting(gym, run, served, arguments):
    said = gym("view", *arguments)
    ((names, where, *_),) = served
    assert (said.code, names, where[0]) == (0, ["run.jsonl"], "127.0.0.1")
    assert said.out == f"Viewing run.jsonl at http://127.0.0.1:{where[1]}\n"
    assert "Everyone" not in said.err


def test_it_listens_for_every_address_if_asked_to(gym, run, served):
    said = gym("view", "run.jsonl", "--host", "0.0.0.0", "--port", "0")
    assert (said.code, served[0][1][0]) == (0, "0.0.0.0")
    assert f"at http://{reachable_host('0.0.0.0')}:" in said.out
    assert "Anyone who can reach this machine can read these files" in said.err
    assert "hint: `--token` admits only those who have the printed URL" in said.err


def test_with_a_token_the_printed_address_is_the_key(gym, run, served):
    said = gym("view", "run.jsonl", "--host", "0.0.0.0", "--port", "0", "--token", "++allowed_hosts=[gym.example.com]")
    *_, host, access = served[0]
    assert (host, access.allowed_hosts) == ("0.0.0.0", ("gym.example.com",))
    assert said.out.endswith(f"/?token={access.token}\n")
    assert len(access.token) >= 32
    assert "Everyone" not in said.err


def test_a_port_that_is_taken_gives_the_next_and_says_so(gym, run, served):
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        said = gym("view", "run.jsonl", "--port", str(port))
    found = served[0][1][1]
    assert found > port
    assert said.err == f"Port {port} is taken; {found} is free.\nPress Ctrl-C to stop.\n"


def test_several_files_are_opened_together(gym, run, served):
    assert gym("view", "run.jsonl", "run.jsonl", "--port", "0").code == 0
    assert served[0][0] == ["run.jsonl", "run.jsonl"]


def test_the_older_command_opens_it_too(gym, run, served, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["ng_viewer", "run.jsonl", "+server_port=0"])
    assert legacy.run_alias() == 0
    assert "use `gym view` instead" in capsys.readouterr().err
    assert served[0][0] == ["run.jsonl"]


def test_no_browser_is_opened_unless_asked_for(gym, run, served, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    gym("view", "run.jsonl", "--port", "0")
    assert opened == []
    gym("view", "run.jsonl", "--port", "0", "--browser")
    assert opened == [f"http://127.0.0.1:{served[-1][1][1]}"]


def test_every_file_that_is_missing_is_named(gym, run):
    said = gym("view", "a.jsonl", "run.jsonl", "b.jsonl")
    assert said.code == 1
    assert "there is no file 'a.jsonl', 'b.jsonl'" in said.err
    assert "hint:" in said.err


def test_a_folder_is_not_a_file(gym, served):
    said = gym("view", ".", "--port", "0")
    assert said.code == 1
    assert "is a folder" in said.err


def test_without_a_file_the_missing_setting_is_named(gym):
    said = gym("view")
    assert said.code == 2
    assert "missing required configuration: jsonl_fpath" in said.err


def test_without_gradio_the_command_to_install_it_is_said(gym, run, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = gym("view", "run.jsonl")
    assert said.code == 1
    assert 'hint: pip install "nemo-gym[viewer]"' in said.err


def test_a_report_is_written_without_a_server_or_gradio(gym, run, served, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = gym("view", "run.jsonl", "--export", "report", "--export-rollouts", "3")
    assert (said.code, served) == (0, [])
    assert "report/index.html" in said.out
    assert "3 rollouts" in said.out
    assert "run.jsonl" in (tmp_path / "cwd/report/index.html").read_text()


def test_its_settings_are_explained(gym):
    said = gym("view", "+help=true")
    assert said.code == 0
    for name in ("jsonl_fpath", "server_host", "server_port", "export_dirpath"):
        assert f"- {name} (" in said.out
    assert "[default: 7860]" in said.out


def test_the_command_itself_does_not_load_gradio():
    code = "import sys, nemo_gym.cli.view; print([name for name in ('gradio', 'pandas') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
