# SPDX-License-Identifier: Apache-2.0
"""`gym dataset upload`, `download` and `migrate` with a Hub that speaks its protocol, as a user runs them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nemo_gym._data import gitlab
from nemo_gym._data.gitlab_api import GitlabError, RegistrySettings
from nemo_gym._data.gitlab_registry import open_registry
from nemo_gym.cli import legacy
from tests.support.fake_hub import (
    FakeHub,
    environment,
    hub as hub,  # a fixture
)
from tests.support.hub_store import READER, WRITER
from tests.support.mlflow_server import mlflow_server
from tests.support.terminal import OnTerminal

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

ROWS = b'{"responses_create_params": {"input": "hi"}}\n' * 100
CONFIG = "resources_servers/multineedle/configs/multineedle.yaml"
SET = "org/Nemotron-RL-math-multineedle"
COLLECTION = "org/my-sets-68abc"
ENV = f"""
hf_token: {WRITER}
hf_organization: org
hf_collection_name: My Sets
hf_collection_slug: 68abc
"""


@pytest.fixture
def work(tmp_path, hub):
    """What a user has: the config of a server, rows, and env.yaml; and on the Hub the collection."""
    prepare(tmp_path)
    hub.add_collection(COLLECTION)
    return tmp_path


def prepare(folder: Path) -> None:
    config = folder / CONFIG
    config.parent.mkdir(parents=True)
    config.write_text("needle: {resources_servers: {multineedle: {entrypoint: app.py, domain: Math}}}\n")
    (folder / "rows.jsonl").write_bytes(ROWS)
    (folder / "env.yaml").write_text(ENV)


def upload(gym, *arguments, command="upload"):
    return gym("dataset", command, "--input", "rows.jsonl", "--resource-config", CONFIG, *arguments)


def changes(hub):
    return [path for verb, path, _ in hub.received if verb in ("POST", "PUT", "DELETE") and "paths-info" not in path]


# --- upload -----------------------------------------------------------------------------------------------------------


def test_an_upload_is_named_after_organization_prefix_domain_and_server(gym, hub, work):
    said = upload(gym)
    assert said.code == 0
    assert hub.datasets[SET].files()["rows.jsonl"] == ROWS
    assert hub.collections[COLLECTION] == [SET]
    assert said.out.splitlines() == [
        "[Nemo-Gym] - Dataset upload successful",
        f"{hub.url}/datasets/{SET}: rows.jsonl, commit {hub.datasets[SET].refs['main'][:12]}",
        f"download it with: gym dataset download --repo-id {SET} --artifact rows.jsonl --output rows.jsonl",
    ]
    # No progress bar where there is no terminal.
    assert said.err == f"settings are read from {work / 'env.yaml'}\n"


def test_a_dataset_name_takes_the_place_of_the_server(gym, hub, work):
    assert upload(gym, "--name", "OpenMathReasoning", "--prefix", "NeMo-Gym").code == 0
    assert list(hub.datasets) == ["org/NeMo-Gym-math-OpenMathReasoning"]


def test_a_pull_request_is_made_as_in_the_documentation(gym, hub, work):
    dataset = hub.add_dataset("org/Nemotron-RL-math-OpenMathReasoning")
    said = gym(
        *("dataset", "upload", "+dataset_name=OpenMathReasoning", "+input_jsonl_fpath=rows.jsonl"),
        *(f"+resource_config_path={CONFIG}", "+split=validation", "+create_pr=true", "+revision=my-branch-name"),
        *("+commit_message=Add validation set", "+commit_description=Includes 545 examples"),
    )
    assert said.code == 0
    assert f"[Nemo-Gym] - Pull Request created: {hub.url}/datasets/{dataset.name}/discussions/1\n" in said.out
    assert dataset.messages[-1] == ("Add validation set", "Includes 545 examples")
    assert dataset.files("refs/pr/1")["rows.jsonl"] == ROWS


def test_rows_without_a_required_field_fail_and_nothing_is_uploaded(gym, hub, work):
    (work / "rows.jsonl").write_text('{"question": 1}\n')
    said = upload(gym)
    assert said.code == 1
    assert "row 1: missing (responses_create_params)" in said.err
    assert hub.received == []
    assert upload(gym, "--split", "validation").code == 0


def test_a_dry_run_tells_what_would_be_done(gym, hub, work):
    said = upload(gym, "--dry-run")
    assert said.code == 0
    assert f"repository: {SET}, to be created, private\n" in said.out
    assert f"collection: {COLLECTION}, to be added to\n" in said.out
    assert changes(hub) == []
    plan = json.loads(upload(gym, "--dry-run", "--json", "--create-pr").out)
    assert (plan["dry_run"], plan["branch"]) == (True, "a pull request against main")


def test_a_dry_run_fails_where_the_upload_would(gym, hub, work):
    said = upload(gym, "--dry-run", "--collection-slug", "other")
    assert (said.code, "no collection 'org/my-sets-other'" in said.err) == (1, True)


def test_an_upload_as_json(gym, hub, work):
    told = json.loads(upload(gym, "--json").out)
    assert told["repo_id"] == SET
    assert (told["is_changed"], told["pull_request"], told["deleted_from_gitlab"]) == (True, None, False)
    assert json.loads(upload(gym, "--json").out)["is_changed"] is False


def test_a_revision_that_is_a_version_is_no_branch(gym, hub, work):
    said = upload(gym, "--revision", "0.0.1")
    assert said.code == 1
    assert "no branch '0.0.1'" in said.err
    assert "--storage gitlab" in said.err
    assert changes(hub) == []


def test_what_is_missing_is_named_at_once(gym, hub, work):
    (work / "env.yaml").unlink()
    said = gym("dataset", "upload", "--input", "rows.jsonl")
    assert said.code == 2
    for key in ("hf_token", "hf_organization", "hf_collection_name", "hf_collection_slug", "resource_config_path"):
        assert key in said.err


def test_the_token_of_a_login_serves_where_the_config_has_none(gym, hub, work, monkeypatch):
    (work / "env.yaml").write_text(ENV.replace(f"hf_token: {WRITER}", ""))
    monkeypatch.setenv("HF_TOKEN", WRITER)
    assert upload(gym).code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--input", "gone.jsonl"), "input_jsonl_fpath 'gone.jsonl' does not exist"),
        (("--resource-config", "gone.yaml"), "resource_config_path 'gone.yaml' does not exist"),
        (("+hf_token=hf_wrong",), "does not accept the token: 401"),
    ],
)
def test_what_cannot_be_uploaded_fails_with_a_message(gym, hub, work, arguments, message):
    said = upload(gym, *arguments)
    assert said.code == 1
    assert message in said.err
    assert "Traceback" not in said.err
    assert "hf_wrong" not in said.err
    assert changes(hub) == []


def test_the_legacy_command_uploads(gym, hub, work, monkeypatch, capsys):
    tokens = ["+input_jsonl_fpath=rows.jsonl", f"+resource_config_path={CONFIG}"]
    monkeypatch.setattr(sys, "argv", ["/bin/ng_upload_dataset_to_hf", *tokens])
    assert legacy.run_alias() == 0
    assert "Dataset upload successful" in capsys.readouterr().out


# --- download ---------------------------------------------------------------------------------------------------------


def test_every_split_is_downloaded_without_a_token(gym, hub, tmp_path):
    hub.add_dataset("org/mcqa", {"train.jsonl": ROWS, "dev.csv": b"a\n1\n"})
    said = gym("dataset", "download", "--repo-id", "org/mcqa", "--output-dir", "data/mcqa")
    assert said.code == 0
    assert said.out == "data/mcqa/train.jsonl: 100 rows\ndata/mcqa/validation.jsonl: 1 row\n"
    assert Path("data/mcqa/train.jsonl").read_bytes() == ROWS


def test_one_split_is_downloaded_to_a_folder_or_a_file(gym, hub):
    hub.add_dataset("org/mcqa", {"train.jsonl": ROWS})
    wanted = ("dataset", "download", "--repo-id", "org/mcqa", "--split", "train")
    assert gym(*wanted, "--output-dir", "data").out == "data/train.jsonl: 100 rows\n"
    assert json.loads(gym(*wanted, "-o", "here/t.jsonl", "--json").out) == {
        "schema": 1,
        "files": [{"path": "here/t.jsonl", "rows": 100}],
    }


@pytest.mark.parametrize("prefix", ["ng", "nemo_gym"])
def test_a_raw_file_is_downloaded_by_the_legacy_command(gym, hub, monkeypatch, prefix):
    hub.add_dataset("NVIDIA/NeMo-Gym-Math-example_multi_step-v1", {"train.jsonl": b"anything"})
    tokens = ["+repo_id=NVIDIA/NeMo-Gym-Math-example_multi_step-v1", "+artifact_fpath=train.jsonl"]
    monkeypatch.setattr(
        sys, "argv", [f"/bin/{prefix}_download_dataset_from_hf", *tokens, "+output_fpath=data/train.jsonl"]
    )
    assert legacy.run_alias() == 0
    assert Path("data/train.jsonl").read_bytes() == b"anything"


def test_a_raw_file_goes_into_a_folder_under_its_own_name(gym, hub):
    hub.add_dataset("org/set", {"in/if.jsonl": b"{}\n"})
    wanted = ("+repo_id=org/set", "+output_dirpath=data", "+artifact_fpath=in/if.jsonl")
    assert gym("dataset", "download", *wanted).out == "data/if.jsonl\n"


def test_a_revision_is_one_of_the_hub(gym, hub):
    hub.add_dataset("org/set", {"a.jsonl": b"{}\n"}).commit("old", {"a.jsonl": b'{"old": 1}\n'})
    wanted = ("dataset", "download", "--repo-id", "org/set", "--artifact", "a.jsonl", "-o", "a.jsonl")
    assert gym(*wanted, "--revision", "old").code == 0
    assert Path("a.jsonl").read_bytes() == b'{"old": 1}\n'


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--split", "train"), 2, "exactly one of `output_dirpath` and `output_fpath`"),
        (("--split", "train", "--artifact", "a", "-o", "x"), 2, "not both"),
        (("-o", "x"), 2, "say which with `split` or `artifact_fpath`"),
        (("--split", "trian", "-o", "x"), 2, "Did you mean 'train'?"),
        (("--storage", "s3", "-o", "x"), 2, "'s3' is not one of hf, gitlab"),
        (("+storage=s3", "-o", "x"), 2, "'s3' is not one of hf, gitlab"),
        (("--artifact", "Train.jsonl", "-o", "x"), 1, "Did you mean 'train.jsonl'?"),
        (("--split", "test", "-o", "x"), 1, "available: 'train'"),
    ],
)
def test_a_download_that_cannot_be_is_explained_and_leaves_nothing(gym, hub, arguments, code, message):
    hub.add_dataset("org/set", {"train.jsonl": ROWS})
    said = gym("dataset", "download", "--repo-id", "org/set", *arguments)
    assert (said.code, message in said.err) == (code, True)
    assert os.listdir() == []


BIG = b'{"text": "%s"}\n' % (b"x" * 982) * 25_000


def test_a_download_whose_process_was_killed_is_resumed_by_the_next(tmp_path):
    with FakeHub() as hub:
        hub.add_dataset("org/set", {"big.jsonl": BIG})
        hub.hang("GET", "/resolve/", after_bytes=15_000_000)
        command = [sys.executable, "-m", "nemo_gym.cli.main", "dataset", "download", "--repo-id", "org/set"]
        command += ["--artifact", "big.jsonl", "--output", "data/big.jsonl"]
        settings = {"cwd": tmp_path, "env": {**os.environ, **environment(hub, tmp_path)}}
        killed = subprocess.Popen(command, **settings)
        while not any(part.stat().st_size for part in tmp_path.glob("data/.*/*.part")):
            assert killed.poll() is None
            time.sleep(0.02)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert not (tmp_path / "data/big.jsonl").exists()

        assert subprocess.run(command, **settings, check=True, capture_output=True).stdout == b"data/big.jsonl\n"
        first, second = hub.calls("GET", "/resolve/")
        assert "Range" not in first
        assert int(second["Range"].removeprefix("bytes=").partition("-")[0]) > 0
    assert (tmp_path / "data/big.jsonl").read_bytes() == BIG
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["big.jsonl"]


@pytest.mark.thorough
def test_a_terminal_sees_how_far_a_transfer_is(tmp_path):
    prepare(tmp_path)
    (tmp_path / "rows.jsonl").write_bytes(ROWS * 1000)
    with FakeHub() as hub:
        hub.add_collection(COLLECTION)
        for arguments in (
            ["upload", "-i", "rows.jsonl", "--resource-config", CONFIG],
            ["download", "--repo-id", SET, "--artifact", "rows.jsonl", "-o", "back.jsonl"],
        ):
            command = [sys.executable, "-m", "nemo_gym.cli.main", "dataset", *arguments]
            running = OnTerminal(command, columns=120, cwd=tmp_path, environment=environment(hub, tmp_path))
            try:
                assert running.wait() == 0
                assert "rows.jsonl: 100%" in running.screen.text
            finally:
                running.close()
    assert (tmp_path / "back.jsonl").read_bytes() == ROWS * 1000


# --- datasets of a config ---------------------------------------------------------------------------------------------

DATASETS = """
needle: {resources_servers: {multineedle: {entrypoint: app.py, domain: math}}}
player:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: needle}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
      - name: train
        type: train
        license: MIT
        jsonl_fpath: data/train.jsonl
        source: {type: huggingface, repo_id: org/private}
      - name: held out
        type: validation
        license: MIT
        jsonl_fpath: data/held_out.jsonl
        source: {type: huggingface, repo_id: org/private, artifact_fpath: raw/held_out.jsonl}
"""


def test_datasets_of_a_config_are_fetched_with_its_token(gym, hub, tmp_path):
    (tmp_path / "config.yaml").write_text(DATASETS)
    Path("env.yaml").write_text(f"hf_token: {READER}\n")
    hub.add_dataset("org/private", {"train.jsonl": ROWS, "raw/held_out.jsonl": ROWS}, private=True)
    said = gym(
        *("dataset", "collate", "--config", "config.yaml", "--mode", "train_preparation"),
        *("--output-dir", "out", "--download"),
    )
    assert said.code == 0, said.err
    assert "fetching data/train.jsonl from Hugging Face org/private\n" in said.err
    assert Path("data/train.jsonl").read_bytes() == Path("data/held_out.jsonl").read_bytes() == ROWS
    assert len(Path("out/train.jsonl").read_text().splitlines()) == 100


def test_a_dataset_that_cannot_be_fetched_stops_the_collation(gym, hub, tmp_path):
    (tmp_path / "config.yaml").write_text(DATASETS)
    said = gym(
        *("dataset", "collate", "--config", "config.yaml", "--mode", "train_preparation"),
        *("--output-dir", "out", "--download"),
    )
    assert said.code == 1
    assert "could not look up the dataset 'org/private'" in said.err
    assert os.listdir() == []


# --- migrate ----------------------------------------------------------------------------------------------------------


class Registry:
    """GitLab as `migrate` sees it: a name that is there, and what was done, in order, beside what the Hub was asked."""

    def __init__(self, hub: FakeHub, *names: str) -> None:
        self.hub, self.names, self.found_on_hub = hub, set(names), None

    def delete(self, name, settings, confirm):
        if name not in self.names:
            raise GitlabError(f"the registry has no dataset {name!r}.")
        if not confirm(f"[Nemo-Gym] - Found model '{name}' in the registry. Are you sure? [y/N]: "):
            return False
        self.found_on_hub = {dataset: one.files().get("rows.jsonl") for dataset, one in self.hub.datasets.items()}
        self.names.remove(name)
        return True


@pytest.fixture
def registry(hub, work, monkeypatch):
    (work / "env.yaml").write_text(ENV + "mlflow_tracking_uri: http://gitlab.example.com\n")
    registry = Registry(hub, "multineedle")
    monkeypatch.setattr(gitlab, "delete", registry.delete)
    return registry


def test_migrate_uploads_reads_back_and_only_then_deletes(gym, hub, registry):
    said = upload(gym, "--yes", command="migrate")
    assert said.code == 0
    assert registry.found_on_hub == {SET: ROWS}
    assert hub.calls("GET", f"/datasets/{SET}/resolve/")
    assert said.out.splitlines()[0] == "[Nemo-Gym] - Dataset upload successful"
    assert said.out.splitlines()[-1] == "[Nemo-Gym] - 'multineedle' is deleted from GitLab"


@pytest.mark.parametrize(("setting", "left"), [("true", set()), ("false", {"multineedle"})])
def test_an_upload_deletes_from_gitlab_only_if_told_to(gym, registry, setting, left):
    assert upload(gym, "--yes", f"+delete_from_gitlab={setting}").code == 0
    assert registry.names == left


@pytest.mark.parametrize(("answer", "is_deleted"), [("y", True), ("YES", True), ("", False), ("n", False)])
def test_migrate_deletes_only_when_the_user_says_yes(gym, registry, monkeypatch, tmp_path, answer, is_deleted):
    class Keyboard:
        def isatty(self):
            return True

        def readline(self):
            return f"{answer}\n"

    monkeypatch.setattr(sys, "stdin", Keyboard())
    said = upload(gym, command="migrate")
    assert said.code == 0
    assert "[Nemo-Gym] - Found model 'multineedle' in the registry." in said.err
    assert (registry.names == set()) is is_deleted
    assert f"is {'deleted from' if is_deleted else 'kept in'} GitLab" in said.out


def test_migrate_deletes_nothing_when_the_upload_fails(gym, hub, registry, work):
    (work / "rows.jsonl").write_text('{"question": 1}\n')
    assert upload(gym, "--yes", command="migrate").code == 1
    assert registry.names == {"multineedle"}
    assert changes(hub) == []


def test_migrate_deletes_nothing_when_the_upload_cannot_be_read_back(gym, hub, registry):
    hub.cut("GET", "/resolve/", times=1000)
    said = upload(gym, "--yes", command="migrate")
    assert (said.code, "could not download 'rows.jsonl'" in said.err) == (1, True)
    assert registry.names == {"multineedle"}


def test_migrate_uploads_nothing_when_gitlab_has_no_dataset_of_that_very_name(gym, hub, registry):
    said = upload(gym, "--yes", "--name", "MultiNeedle", command="migrate")
    assert (said.code, "no dataset 'MultiNeedle'" in said.err) == (1, True)
    assert changes(hub) == []


def test_migrate_without_anybody_to_ask_fails_before_the_upload(gym, hub, registry):
    said = upload(gym, command="migrate")
    assert (said.code, "--yes" in said.err) == (2, True)
    assert changes(hub) == []


def test_migrate_does_not_take_the_option_that_upload_has(gym, hub, registry):
    said = upload(gym, "+delete_from_gitlab=true", command="migrate")
    assert (said.code, "delete_from_gitlab" in said.err) == (2, True)
    assert upload(gym, "--delete-from-gitlab", "--yes").code == 0
    assert registry.names == set()


def test_a_dry_run_of_migrate_looks_at_both_sides(gym, hub, registry):
    said = upload(gym, "--dry-run", command="migrate")
    assert (said.code, "gitlab: multineedle is to be deleted" in said.out) == (0, True)
    assert changes(hub) == []
    assert registry.names == {"multineedle"}


def test_the_legacy_command_migrates(gym, registry, monkeypatch):
    tokens = ["+input_jsonl_fpath=rows.jsonl", f"+resource_config_path={CONFIG}", "+yes=true"]
    monkeypatch.setattr(sys, "argv", ["/bin/ng_gitlab_to_hf_dataset", *tokens])
    assert legacy.run_alias() == 0
    assert registry.names == set()


@pytest.mark.slow
def test_a_dataset_moves_from_a_real_registry_to_the_hub(gym, hub, work):
    settings = RegistrySettings(mlflow_server())
    gitlab.upload(work / "rows.jsonl", "to_be_moved", "0.0.1", settings)
    (work / "env.yaml").write_text(f"{ENV}mlflow_tracking_uri: {settings.tracking_uri}\n")
    said = upload(gym, "--yes", "--name", "to_be_moved", command="migrate")
    assert said.code == 0, said.err
    assert hub.datasets["org/Nemotron-RL-math-to_be_moved"].files()["rows.jsonl"] == ROWS
    with open_registry(settings) as registry:
        assert not registry.has("to_be_moved")
