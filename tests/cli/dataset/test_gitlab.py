# SPDX-License-Identifier: Apache-2.0
"""`gym dataset upload|download --storage gitlab`, `gym dataset rm` and their older names, as a user runs them: the
registry is a real MLflow server behind GitLab's routes, and env.yaml says where it is.
"""

import json
import os
import pty
import shlex
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nemo_gym import train_data_utils
from nemo_gym._data import gitlab_api
from nemo_gym.cli import legacy
from nemo_gym.cli.dataset.gitlab import make_confirmation
from tests.support.gitlab_proxy import TOKEN, Faults, GitlabProxy
from tests.support.mlflow_server import mlflow_server

pytestmark = [pytest.mark.thorough, pytest.mark.slow]

ROWS = '{"responses_create_params": {"input": "hello"}}\n{"responses_create_params": {"input": "world"}}\n'
CONFIG = """
game:
  resources_servers:
    game: {{entrypoint: app.py, domain: games}}
player:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: game}}
      model_server: {{type: responses_api_models, name: policy_model}}
      datasets:
      - name: train
        type: train
        license: MIT
        jsonl_fpath: data/new/train.jsonl
        source: {{type: gitlab, dataset_name: {name}, version: 0.0.1, artifact_fpath: train.jsonl}}
"""


@pytest.fixture(scope="module")
def running_gitlab() -> Iterator[GitlabProxy]:
    pytest.importorskip("mlflow")
    with GitlabProxy(mlflow_server()) as running:
        yield running


@pytest.fixture
def name() -> str:
    return f"multineedle-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def gitlab(running_gitlab: GitlabProxy, gym: Callable, tmp_path: Path) -> GitlabProxy:
    """The registry that the env.yaml of the working folder names; a JSONL file is there too."""
    running_gitlab.faults = Faults()
    running_gitlab.requests.clear()
    Path("env.yaml").write_text(f"mlflow_tracking_uri: {running_gitlab.uri}/\nmlflow_tracking_token: {TOKEN}\n")
    Path("data").mkdir()
    Path("data/train.jsonl").write_text(ROWS)
    return running_gitlab


def upload(name: str, *more: str) -> tuple[str, ...]:
    words = ("dataset", "upload", "--storage", "gitlab", "--name", name, "--revision", "0.0.1")
    return (*words, "--input", "data/train.jsonl", *more)


def has(gitlab: GitlabProxy, name: str) -> bool:
    return gitlab.call("GET", "registered-models/get", name=name)[0] == 200


def test_a_dataset_goes_there_and_the_command_that_is_printed_brings_it_back(gym, gitlab, name):
    said = gym(*upload(name))
    assert said.code == 0, said.err
    first, checked, command = said.out.splitlines()
    assert first == "[Nemo-Gym] - Dataset upload successful"
    assert checked.startswith(f"{len(ROWS)} bytes, read back and compared; SHA-256 ")
    assert command == (
        f"download it with: gym dataset download --storage gitlab --name {name} --revision 0.0.1 "
        "--artifact train.jsonl --output data/train.jsonl"
    )
    Path("data/train.jsonl").unlink()
    said = gym(*shlex.split(command.partition(": gym ")[2]))
    assert (said.code, said.out) == (0, f"data/train.jsonl: {len(ROWS)} bytes\n")
    assert Path("data/train.jsonl").read_text() == ROWS


def test_the_older_commands_do_the_same(gym, gitlab, name, monkeypatch, capsys):
    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", [f"/bin/{words[0]}", *words[1:]])
        return legacy.run_alias()

    common = (f"+dataset_name={name}", "+version=0.0.1")
    assert run("ng_upload_dataset_to_gitlab", *common, "+input_jsonl_fpath=data/train.jsonl") == 0
    downloaded = ("+artifact_fpath=train.jsonl", "+output_fpath=some/where/rows.jsonl")
    assert run("nemo_gym_download_dataset_from_gitlab", *common, *downloaded) == 0
    assert Path("some/where/rows.jsonl").read_text() == ROWS
    assert run("ng_delete_dataset_from_gitlab", f"+dataset_name={name}", "+yes=true") == 0
    assert capsys.readouterr().out.endswith(f"[Nemo-Gym] - {name!r} is deleted from GitLab\n")
    assert not has(gitlab, name)


def test_json_is_all_that_is_on_stdout(gym, gitlab, name):
    done = json.loads(gym(*upload(name, "--json")).out)
    assert (done["dataset_name"], done["version"], done["size_bytes"]) == (name, "0.0.1", len(ROWS))
    words = ("dataset", "download", "--storage", "gitlab", "--name", name, "--revision", "0.0.1")
    found = json.loads(gym(*words, "--artifact", "train.jsonl", "--output-dir", "elsewhere", "--json").out)
    assert found["files"] == [{"path": "elsewhere/train.jsonl", "size_bytes": len(ROWS)}]
    deleted = json.loads(gym("dataset", "rm", "--name", name, "--yes", "+json=true").out)
    assert deleted["deleted_from_gitlab"] is True


def test_a_dry_run_changes_nothing(gym, gitlab, name):
    said = gym(*upload(name, "--dry-run"))
    assert said.out == f"nothing was changed; 'train.jsonl' would go into version 0.0.1 of {name!r}\n"
    assert not has(gitlab, name)


def test_a_version_that_is_there_fails_with_exit_code_1(gym, gitlab, name):
    assert gym(*upload(name)).code == 0
    said = gym(*upload(name))
    assert (said.code, said.out) == (1, "")
    assert f"Error: version 0.0.1 of {name!r} exists and holds 'train.jsonl'" in said.err


def test_faults_are_sentences_without_a_traceback_or_the_token(gym, gitlab, name, monkeypatch):
    Path("env.yaml").write_text(f"mlflow_tracking_uri: {gitlab.uri}\nmlflow_tracking_token: glpat-wrong\n")
    said = gym(*upload(name))
    assert said.code == 1
    assert said.err.startswith("Error: could not look up version 0.0.1")
    assert "the registry does not accept the token: 401 (401 Unauthorized).\nhint: put a GitLab token" in said.err
    monkeypatch.setattr(gitlab_api, "time", SimpleNamespace(sleep=lambda _: None))
    Path("env.yaml").write_text("mlflow_tracking_uri: http://127.0.0.1:9/api/v4/projects/1/ml/mlflow\n")
    unreachable = gym("dataset", "rm", "--name", name, "--yes")
    assert "Connection refused" in unreachable.err
    assert "Traceback" not in said.err + unreachable.err
    assert "glpat" not in said.err + unreachable.err


def test_what_is_missing_is_said_in_one_go(gym):
    said = gym("dataset", "download", "--storage", "gitlab", "--name", "x")
    assert said.code == 2
    assert "missing required configuration: version, artifact_fpath, output_fpath" in said.err
    said = gym("dataset", "rm", "--name", "x", "--yes")
    assert said.code == 1
    assert "mlflow_tracking_uri is not set.\nhint: put both into env.yaml" in said.err


# --- deleting asks ----------------------------------------------------------------------------------------------------


def test_without_a_terminal_nothing_is_deleted_and_nothing_waits(gym, gitlab, name, monkeypatch):
    assert gym(*upload(name)).code == 0
    reading, writing = os.pipe()  # a standard input that stays open and says nothing
    with os.fdopen(reading) as silent, os.fdopen(writing, "w"):
        monkeypatch.setattr(sys, "stdin", silent)
        said = gym("dataset", "rm", "--name", name)
    assert said.code == 2
    assert "there is no terminal to ask on.\nhint: pass --yes" in said.err
    assert has(gitlab, name)


def answer(monkeypatch: pytest.MonkeyPatch, said: str, ask: Callable[[], Any]) -> Any:
    """What comes of a question that is answered on a terminal."""
    main, terminal = pty.openpty()
    try:
        os.write(main, f"{said}\n".encode())
        with os.fdopen(terminal) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            return ask()
    finally:
        os.close(main)


def test_only_yes_deletes(gym, gitlab, name, monkeypatch):
    assert gym(*upload(name)).code == 0
    for said in ("", "n", "yep", "y"):
        is_deleted = said == "y"
        done = answer(monkeypatch, said, lambda: gym("dataset", "rm", "--name", name))
        assert done.code == 0
        assert done.err == (
            f"[Nemo-Gym] - Found model '{name}' in the registry. "
            "Are you sure you want to delete it from Gitlab? [y/N]: "
        )
        assert done.out == f"[Nemo-Gym] - {name!r} is {'deleted from' if is_deleted else 'kept in'} GitLab\n"
        assert has(gitlab, name) is not is_deleted


@pytest.mark.parametrize("said", ["y", "Y", "yes", " YES "])
def test_yes_may_be_spelt_as_one_likes(monkeypatch, said):
    assert answer(monkeypatch, said, lambda: make_confirmation(yes=False)("? "))


# --- where datasets are used ------------------------------------------------------------------------------------------


def test_collate_fetches_what_is_missing(gym, gitlab, name):
    assert gym(*upload(name)).code == 0
    Path("config.yaml").write_text(CONFIG.format(name=name))
    words = ("dataset", "collate", "--config", "config.yaml", "--mode", "train_preparation", "--output-dir", "out")
    missing = gym(*words)
    assert (missing.code, Path("data/new").exists()) == (1, False)
    said = gym(*words, "--download")
    assert said.code == 0, said.err
    assert f"fetching data/new/train.jsonl from GitLab {name} 0.0.1, file train.jsonl" in said.err
    assert Path("data/new/train.jsonl").read_text() == ROWS
    assert len(Path("out/train.jsonl").read_text().splitlines()) == 2
    assert train_data_utils.FETCHERS == {}


@pytest.mark.filterwarnings("ignore:dataset 'train'.*deprecated:DeprecationWarning")
def test_a_dataset_in_both_registries_is_fetched_from_the_one_that_is_asked_for(gym, gitlab, name):
    assert gym(*upload(name)).code == 0
    config = CONFIG.format(name=name).replace("source: {type: gitlab, ", "gitlab_identifier: {")
    Path("config.yaml").write_text(f"{config}        huggingface_identifier: {{repo_id: org/set}}\n")
    words = ("dataset", "collate", "--config", "config.yaml", "--mode", "train_preparation", "--output-dir", "out")
    said = gym(*words, "+should_download=true", "+data_source=gitlab")
    assert said.code == 0, said.err
    assert f"from GitLab {name} 0.0.1" in said.err
    assert Path("data/new/train.jsonl").read_text() == ROWS


def test_the_token_is_on_no_command_line_and_in_no_output_however_much_is_logged(gitlab, name):
    """A process of its own, watched while the registry is slow to answer."""
    seen = []

    def look(method: str, endpoint: str, fields: dict) -> tuple[int, dict]:
        seen.extend(Path(f"/proc/{process.pid}/{what}").read_bytes().decode() for what in ("cmdline", "environ"))
        return real(method, endpoint, fields)

    real, gitlab.answer = gitlab.answer, look
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "nemo_gym.cli.main", *upload(name, "--verbose")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said, _ = process.communicate(timeout=500)
    finally:
        del gitlab.answer
    assert process.returncode == 0, said
    assert "urllib3" in said
    assert seen
    assert TOKEN not in said + "".join(seen)
