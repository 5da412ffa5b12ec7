# SPDX-License-Identifier: Apache-2.0
"""Datasets in a model registry: a real MLflow server, alone and behind GitLab's routes, tags and faults."""

import logging
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import requests

from nemo_gym._config.dataset_types import DatasetConfig
from nemo_gym._data import gitlab
from nemo_gym._data.gitlab_api import Api, GitlabError, RegistrySettings
from nemo_gym._data.gitlab_files import checksum_of
from tests.support.gitlab_proxy import TOKEN, Faults, GitlabProxy
from tests.support.mlflow_server import mlflow_server

pytestmark = pytest.mark.slow

CUT = 1 << 17
ROWS = b"".join(b'{"responses_create_params": {"input": "%d"}}\n' % number for number in range(20_000))


@dataclass
class Place:
    """A registry of either flavour, and a dataset name in it that nobody else uses."""

    settings: RegistrySettings
    proxy: GitlabProxy
    folder: Path
    name: str

    @property
    def source(self) -> Path:
        return self.file("train.jsonl", ROWS)

    def file(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def with_rows(self) -> "Place":
        """The same registry, with a dataset that has the rows in version 0.0.1; tests that only read share it."""
        shared = f"Rows-{self.settings.is_gitlab}"
        if self.model(shared) is None:
            self.upload(name=shared)
            self.proxy.requests.clear()
        return replace(self, name=shared)

    def upload(self, version: str = "0.0.1", source: Path | None = None, **more: Any) -> gitlab.Upload:
        return gitlab.upload(source or self.source, more.pop("name", self.name), version, self.settings, **more)

    def download(self, version: str = "0.0.1", artifact: str = "train.jsonl", **more: Any) -> Path:
        return gitlab.download(more.pop("name", self.name), version, artifact, self.target, self.settings, **more)

    def delete(self, confirm: Callable[[str], bool] = lambda _: True, name: str | None = None) -> bool:
        return gitlab.delete(name or self.name, self.settings, confirm)

    @property
    def target(self) -> Path:
        return self.folder / "made" / "for" / "it" / "rows.jsonl"

    def left_beside_the_target(self) -> list[str]:
        return sorted(path.name for path in self.target.parent.iterdir()) if self.target.parent.exists() else []

    def model(self, name: str | None = None) -> dict[str, Any] | None:
        """The dataset as the real server has it."""
        return self.proxy.call("GET", "registered-models/get", name=name or self.name)[1].get("registered_model")

    def active_runs(self) -> list[dict[str, Any]]:
        _, found = self.proxy.call("GET", "experiments/get-by-name", experiment_name=f"[model]{self.name}")
        if "experiment" not in found:
            return []
        return self.proxy.call("POST", "runs/search", experiment_ids=[found["experiment"]["experiment_id"]])[1].get(
            "runs", []
        )


@pytest.fixture(scope="module")
def running_proxy() -> Iterator[GitlabProxy]:
    pytest.importorskip("mlflow")
    with GitlabProxy(mlflow_server()) as running:
        yield running


@pytest.fixture
def proxy(running_proxy: GitlabProxy) -> GitlabProxy:
    running_proxy.faults = Faults()
    running_proxy.requests.clear()
    return running_proxy


@pytest.fixture
def at_gitlab(proxy: GitlabProxy, tmp_path: Path) -> Place:
    settings = RegistrySettings(proxy.uri, TOKEN, pauses_s=(0, 0))
    return Place(settings, proxy, tmp_path, f"Set-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def at_mlflow(proxy: GitlabProxy, tmp_path: Path) -> Place:
    return Place(RegistrySettings(proxy.mlflow, pauses_s=(0, 0)), proxy, tmp_path, f"Set-{uuid.uuid4().hex[:8]}")


@pytest.fixture(params=["at_gitlab", "at_mlflow"])
def place(request: pytest.FixtureRequest) -> Place:
    """Both flavours, one after the other."""
    return request.getfixturevalue(request.param)


# --- there and back ---------------------------------------------------------------------------------------------------


def test_what_was_uploaded_comes_back_the_same(place: Place):
    seen = []
    done = place.upload(progress=lambda sent, total: seen.append((sent, total)))
    assert (done.dataset, done.version, done.artifact) == (place.name, "0.0.1", "train.jsonl")
    assert done.checksum == checksum_of(place.source)
    assert seen[-1] == (len(ROWS), len(ROWS))
    assert place.download() == place.target
    assert place.target.read_bytes() == ROWS
    assert place.left_beside_the_target() == ["rows.jsonl"]


def test_a_version_is_a_version_of_the_model_with_the_tag_of_gitlab(place: Place):
    place.upload("0.0.1")
    place.upload("0.1.0")
    latest = place.model()["latest_versions"][0]
    assert latest["tags"] == [{"key": "gitlab.version", "value": "0.1.0"}]


def test_the_client_library_of_mlflow_finds_what_was_uploaded(at_mlflow: Place, monkeypatch: pytest.MonkeyPatch):
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    at_mlflow.upload()
    client = MlflowClient(at_mlflow.proxy.mlflow)
    (version,) = client.search_model_versions(f"name='{at_mlflow.name}' and tags.`gitlab.version`='0.0.1'")
    assert [found.path for found in client.list_artifacts(version.run_id)] == ["train.jsonl"]
    assert client.get_run(version.run_id).info.status == "FINISHED"


def test_what_the_client_library_of_mlflow_uploaded_can_be_downloaded(
    at_gitlab: Place, monkeypatch: pytest.MonkeyPatch
):
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", TOKEN)
    client = MlflowClient(at_gitlab.proxy.uri)
    client.create_registered_model(at_gitlab.name)
    tags = {"gitlab.version": "0.0.1"}
    version = client.create_model_version(at_gitlab.name, source="", tags=tags, await_creation_for=0)
    client.log_artifact(version.run_id, str(at_gitlab.source))
    assert at_gitlab.download().read_bytes() == ROWS
    with pytest.raises(GitlabError, match=r"exists and holds 'train.jsonl'"):
        at_gitlab.upload()


def test_a_version_may_hold_several_files(place: Place):
    validation = place.file("validation.jsonl", b"{}\n")
    said: list[str] = []
    place.upload(notice=said.append)
    place.upload(source=validation, notice=said.append)
    assert said == [f"version 0.0.1 of {place.name!r} exists: 'validation.jsonl' is added to its files"]
    assert place.download(artifact="validation.jsonl").read_bytes() == b"{}\n"
    assert place.download().read_bytes() == ROWS


def test_a_file_in_a_folder_is_downloaded_by_its_path(place: Place):
    place.upload()
    run = place.active_runs()[0]["info"]
    url = place.proxy.file_url(f"{run['experiment_id']}:{run['run_id']}", "sub%20folder/other.jsonl")
    requests.put(url, data=b"other\n", timeout=60).raise_for_status()
    assert place.download(artifact="sub folder/other.jsonl").read_bytes() == b"other\n"


def test_names_with_spaces_and_quotes_are_names_like_others(at_mlflow: Place):
    at_mlflow.name += " it's"
    at_mlflow.upload()
    assert at_mlflow.download().read_bytes() == ROWS


def test_files_that_the_server_only_points_to_go_where_it_points(at_mlflow: Place):
    store = at_mlflow.folder / "shared store"
    at_mlflow.proxy.call(
        "POST", "experiments/create", name=f"[model]{at_mlflow.name}", artifact_location=store.as_uri()
    )
    at_mlflow.upload()
    assert [path.read_bytes() for path in store.rglob("train.jsonl")] == [ROWS]
    assert at_mlflow.download().read_bytes() == ROWS
    with pytest.raises(GitlabError, match=r"exists and holds 'train.jsonl'"):
        at_mlflow.upload()
    with pytest.raises(GitlabError, match=r"has no file 'nothing.jsonl'"):
        at_mlflow.download(artifact="nothing.jsonl")
    assert at_mlflow.delete()
    assert not list(store.rglob("train.jsonl"))


def test_a_dataset_of_a_config_is_fetched(at_gitlab: Place):
    at_gitlab = at_gitlab.with_rows()
    source = {
        "type": "gitlab",
        "dataset_name": at_gitlab.name,
        "version": "0.0.1",
        "artifact_fpath": "train.jsonl",
    }
    dataset = DatasetConfig(name="t", type="example", jsonl_fpath="x.jsonl", source=source)
    assert gitlab.fetcher(at_gitlab.settings)(dataset, at_gitlab.target).read_bytes() == ROWS


# --- what is refused --------------------------------------------------------------------------------------------------


def test_what_is_in_the_registry_is_not_replaced(place: Place):
    place = place.with_rows()
    with pytest.raises(GitlabError) as raised:
        place.upload(source=place.file("train.jsonl", b"other"))
    assert str(raised.value) == (
        f"version 0.0.1 of {place.name!r} exists and holds 'train.jsonl': what is in the registry is not replaced.\n"
        "hint: upload it as a higher version than 0.0.1"
    )
    assert place.download().read_bytes() == ROWS


@pytest.mark.parametrize("version", ["1", "1.0", "v1.0.0", "1.0.0-rc1", "01.0.0", "latest", ""])
def test_a_version_has_three_numbers(at_gitlab: Place, version: str):
    with pytest.raises(GitlabError, match=r"is not a version.\nhint: .* x.x.x"):
        at_gitlab.upload(version)
    assert at_gitlab.proxy.requests == []


@pytest.mark.parametrize(("content", "message"), [(None, "is not there"), (b"", "is empty")])
def test_there_must_be_something_to_upload(at_gitlab: Place, content: bytes | None, message: str):
    source = at_gitlab.folder / "other.jsonl"
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(GitlabError, match=message):
        at_gitlab.upload(source=source)
    assert at_gitlab.proxy.requests == []


def test_a_dry_run_looks_and_changes_nothing(place: Place):
    assert place.upload(dry_run=True).artifact == "train.jsonl"
    assert place.model() is None
    assert place.active_runs() == []
    with pytest.raises(GitlabError, match="exists and holds"):
        place.with_rows().upload(dry_run=True)


def test_a_dataset_that_is_not_there_is_named(place: Place):
    for action in (place.download, place.delete):
        with pytest.raises(GitlabError, match=f"the registry has no dataset '{place.name}'.$"):
            action()
    assert not place.target.parent.exists()


def test_a_name_in_other_case_is_another_dataset_and_the_one_that_is_there_is_named(place: Place):
    place.upload()
    other = place.name.lower()
    expected = f"has no dataset {other!r}.\nhint: there is {place.name!r}; upper and lower case count"
    for action in (place.download, place.delete):
        with pytest.raises(GitlabError) as raised:
            action(name=other)
        assert expected in str(raised.value)
    said: list[str] = []
    place.upload(name=other, notice=said.append)
    assert said == [f"the registry also has {place.name!r}, a dataset of its own: upper and lower case count"]


def test_a_version_that_is_not_there_is_named_with_those_that_are(place: Place):
    place = place.with_rows()
    with pytest.raises(GitlabError, match=rf"{place.name}' has no version '0.0.3'.\nit has: 0.0.1"):
        place.download("0.0.3")


def test_a_file_that_is_not_there_is_named_with_those_that_are(place: Place):
    place = place.with_rows()
    with pytest.raises(GitlabError) as raised:
        place.download(artifact="test.jsonl")
    assert str(raised.value) == (
        f"version 0.0.1 of {place.name!r} has no file 'test.jsonl'.\nfiles that were uploaded to it: 'train.jsonl'"
    )
    assert not place.target.parent.exists()


def test_a_folder_is_no_place_for_a_file(place: Place):
    place = place.with_rows()
    place.target.mkdir(parents=True)
    with pytest.raises(GitlabError, match=r"is a folder.\nhint: name the file"):
        place.download()


def test_a_path_cannot_lead_out_of_the_version(at_gitlab: Place):
    at_gitlab = at_gitlab.with_rows()
    with pytest.raises(GitlabError, match="is not the path of a file in the registry"):
        at_gitlab.download(artifact="../../secrets")


# --- deleting ---------------------------------------------------------------------------------------------------------


def test_a_dataset_is_deleted_with_everything_once_the_user_agrees(place: Place):
    place.upload()
    run = place.active_runs()[0]["info"]
    asked: list[str] = []
    assert place.delete(lambda question: not asked.append(question))
    assert asked == [
        f"[Nemo-Gym] - Found model '{place.name}' in the registry. "
        "Are you sure you want to delete it from Gitlab? [y/N]: "
    ]
    assert place.model() is None
    if not place.settings.is_gitlab:  # what GitLab does with the files of a model is its own affair
        assert place.active_runs() == []
        url = place.proxy.file_url(f"{run['experiment_id']}:{run['run_id']}", "train.jsonl")
        assert requests.get(url, timeout=60).status_code == 404


def test_nothing_is_deleted_without_a_yes(place: Place):
    place = place.with_rows()
    assert not place.delete(lambda _: False)
    assert place.download().read_bytes() == ROWS


def test_a_registry_that_only_says_it_deleted_is_found_out(at_gitlab: Place):
    at_gitlab = at_gitlab.with_rows()
    at_gitlab.proxy.faults.refusals["registered-models/delete"] = (200, {})
    with pytest.raises(GitlabError, match="still has it"):
        at_gitlab.delete()


# --- faults: a message, and nothing half-done -------------------------------------------------------------------------


def test_an_upload_that_breaks_once_is_sent_again(at_gitlab: Place):
    at_gitlab.proxy.faults.cut_uploads = 1
    at_gitlab.upload()
    assert at_gitlab.download().read_bytes() == ROWS


def test_an_upload_that_keeps_breaking_leaves_no_dataset(at_gitlab: Place):
    at_gitlab.proxy.faults.cut_uploads = 99
    with pytest.raises(GitlabError, match=r"could not upload 'train.jsonl': no connection to http.*\n?hint: check the"):
        at_gitlab.upload()
    assert at_gitlab.model() is None


def test_an_upload_that_keeps_breaking_leaves_the_other_versions(at_gitlab: Place):
    at_gitlab.upload("0.0.1")
    at_gitlab.proxy.faults.cut_uploads = 99
    with pytest.raises(GitlabError, match="could not upload"):
        at_gitlab.upload("0.0.2")
    at_gitlab.proxy.faults.cut_uploads = 0
    assert at_gitlab.proxy.version(at_gitlab.name, "0.0.2") is None
    assert at_gitlab.download("0.0.1").read_bytes() == ROWS


def test_an_upload_that_the_user_stops_leaves_nothing(place: Place):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place.upload(progress=stop)
    assert place.model() is None
    assert place.settings.is_gitlab or place.active_runs() == []


def test_a_version_that_cannot_be_taken_back_is_named_and_the_next_upload_fills_it(at_gitlab: Place):
    at_gitlab.upload("0.0.1")
    at_gitlab.proxy.faults.cut_uploads = 99
    at_gitlab.proxy.faults.refusals["model-versions/delete"] = (404, {"error": "404 Not Found"})
    said: list[str] = []
    with pytest.raises(GitlabError, match="could not upload"):
        at_gitlab.upload("0.0.2", notice=said.append)
    assert "could not take back version 0.0.2" in said[0]
    assert "upload to it again" in said[0]
    at_gitlab.proxy.faults.cut_uploads = 0
    at_gitlab.upload("0.0.2")
    assert at_gitlab.download("0.0.2").read_bytes() == ROWS


def test_an_upload_that_comes_back_different_does_not_count(at_gitlab: Place):
    at_gitlab.proxy.faults.damage = True
    with pytest.raises(GitlabError, match=r"what was read back is not the same.*instead of"):
        at_gitlab.upload()
    assert at_gitlab.model() is None


def test_a_second_file_that_comes_back_different_goes_and_the_first_stays(at_mlflow: Place, monkeypatch):
    at_mlflow.upload()
    second = at_mlflow.file("validation.jsonl", b"{}\n")
    monkeypatch.setattr(
        "nemo_gym._data.gitlab_files.HttpFiles.checksum", lambda self, path: checksum_of(at_mlflow.source)
    )
    with pytest.raises(GitlabError, match="not the same"):
        at_mlflow.upload(source=second)
    with pytest.raises(GitlabError, match=r"has no file 'validation.jsonl'"):
        at_mlflow.download(artifact="validation.jsonl")
    assert at_mlflow.download().read_bytes() == ROWS


def test_a_version_that_mlflow_does_not_take_leaves_no_run_and_no_dataset(at_mlflow: Place, monkeypatch):
    whole = Api.call

    def refuse(self: Api, method: str, endpoint: str, what: str, **fields: Any) -> dict[str, Any]:
        if endpoint == "model-versions/create":
            raise GitlabError(f"could not {what}: the registry is out of order", 500)
        return whole(self, method, endpoint, what, **fields)

    monkeypatch.setattr(Api, "call", refuse)
    with pytest.raises(GitlabError, match="out of order"):
        at_mlflow.upload()
    monkeypatch.setattr(Api, "call", whole)
    assert at_mlflow.model() is None
    assert at_mlflow.active_runs() == []


def test_a_wrong_token_is_said_and_what_to_do(at_gitlab: Place):
    settings = RegistrySettings(at_gitlab.proxy.uri, "glpat-wrong", pauses_s=())
    for action in (
        lambda: gitlab.upload(at_gitlab.source, at_gitlab.name, "0.0.1", settings),
        lambda: gitlab.download(at_gitlab.name, "0.0.1", "train.jsonl", at_gitlab.target, settings),
        lambda: gitlab.delete(at_gitlab.name, settings, lambda _: True),
    ):
        with pytest.raises(
            GitlabError, match=r"does not accept the token: 401.*\nhint: .*mlflow_tracking_token"
        ) as raised:
            action()
        assert "glpat" not in str(raised.value)
    assert at_gitlab.model() is None


def test_no_token_is_said_too(at_gitlab: Place):
    settings = RegistrySettings(at_gitlab.proxy.uri)
    with pytest.raises(GitlabError, match="asks for a token: 401"):
        gitlab.download(at_gitlab.name, "0.0.1", "train.jsonl", at_gitlab.target, settings)


def test_a_project_that_is_not_there_is_told_from_a_dataset_that_is_not(at_gitlab: Place):
    uri = at_gitlab.proxy.uri.replace("/42/", "/43/")
    with pytest.raises(GitlabError, match=r"there is nothing at http.*404 Project Not Found.*\nhint: the URI"):
        gitlab.download(at_gitlab.name, "0.0.1", "x", at_gitlab.target, RegistrySettings(uri, TOKEN, pauses_s=()))


def test_a_page_that_is_not_mlflow_is_found_out(at_mlflow: Place):
    elsewhere = RegistrySettings(f"{at_mlflow.proxy.mlflow}/health?", pauses_s=())
    with pytest.raises(GitlabError, match=r"is not MLflow's API.\nhint: the URI"):
        gitlab.delete("x", elsewhere, lambda _: True)


@pytest.mark.parametrize("uri", ["sqlite:///x.db", "gitlab.example.com/api", ""])
def test_a_uri_that_is_no_url_is_refused(uri: str):
    with pytest.raises(GitlabError, match="is not a URL"):
        gitlab.delete("x", RegistrySettings(uri), lambda _: True)


def test_credentials_in_a_uri_are_not_shown():
    settings = RegistrySettings("http://user:hunter2@127.0.0.1:9/", "tok", pauses_s=())
    with pytest.raises(GitlabError, match="refused") as raised:
        gitlab.delete("x", settings, lambda _: True)
    assert "hunter2" not in str(raised.value)
    assert "tok" not in repr(settings)


def test_a_registry_that_is_busy_is_asked_again(at_gitlab: Place):
    at_gitlab.proxy.faults.busy = {"registered-models/create": 1, "model-versions/get": 2}
    at_gitlab.upload()
    at_gitlab.proxy.faults.busy = {"model-versions/get": 99}
    with pytest.raises(GitlabError, match=r"the registry is out of order: 503 \(busy\)"):
        at_gitlab.download()


# --- downloads that break ---------------------------------------------------------------------------------------------


def ranges(place: Place) -> list[str]:
    return [headers["Range"] for method, path, headers in place.proxy.requests if "/object-store/" in path]


def test_a_download_that_breaks_is_taken_up_where_it_broke(at_gitlab: Place):
    at_gitlab = at_gitlab.with_rows()
    at_gitlab.proxy.requests.clear()
    at_gitlab.proxy.faults.cut_downloads = [CUT, CUT]
    assert at_gitlab.download().read_bytes() == ROWS
    assert ranges(at_gitlab) == ["bytes=0-", f"bytes={CUT}-", f"bytes={2 * CUT}-"]


def test_what_arrived_of_a_download_is_used_by_the_next_one(at_gitlab: Place):
    at_gitlab = at_gitlab.with_rows()
    at_gitlab.proxy.faults.cut_downloads = [CUT, 0, 0, 0]
    with pytest.raises(GitlabError, match=rf"could not download(.|\n)*{CUT:,} bytes are kept"):
        at_gitlab.download()
    assert not at_gitlab.target.exists()
    at_gitlab.proxy.requests.clear()
    assert at_gitlab.download().read_bytes() == ROWS
    assert ranges(at_gitlab) == ["bytes=0-", f"bytes={CUT}-"]
    assert at_gitlab.left_beside_the_target() == ["rows.jsonl"]


def test_a_server_that_gives_no_parts_is_asked_for_the_whole_again(at_gitlab: Place):
    at_gitlab = at_gitlab.with_rows()
    at_gitlab.proxy.faults.no_ranges = True
    at_gitlab.proxy.faults.cut_downloads = [CUT]
    assert at_gitlab.download().read_bytes() == ROWS


def test_a_server_that_gives_no_parts_and_never_gets_further_is_not_asked_for_ever(at_gitlab: Place):
    at_gitlab = at_gitlab.with_rows()
    at_gitlab.proxy.faults.no_ranges = True
    at_gitlab.proxy.faults.cut_downloads = [CUT] * 20
    with pytest.raises(GitlabError, match="could not download"):
        at_gitlab.download()
    assert not at_gitlab.target.exists()


def test_a_file_without_rows_is_a_file(place: Place):
    place.upload()
    run = place.active_runs()[0]["info"]
    url = place.proxy.file_url(f"{run['experiment_id']}:{run['run_id']}", "empty.jsonl")
    requests.put(url, data=b"", timeout=60).raise_for_status()
    assert place.download(artifact="empty.jsonl").read_bytes() == b""


def test_what_cannot_be_told_again_later_is_not_kept(at_gitlab: Place):
    run = upload_without_checksum(at_gitlab)
    assert run["data"].get("tags", []) == [] or "sha256" not in str(run["data"]["tags"])
    at_gitlab.proxy.faults.no_validators = True
    at_gitlab.proxy.faults.cut_downloads = [CUT, 0, 0, 0]
    with pytest.raises(GitlabError, match="could not download"):
        at_gitlab.download()
    assert at_gitlab.left_beside_the_target() == []


def upload_without_checksum(place: Place) -> dict[str, Any]:
    """As a registry has it that takes no tags, or another program put it there."""
    place.proxy.faults.refusals["runs/set-tag"] = (404, {"error": "404 Not Found"})
    place.upload()
    return place.active_runs()[0]


def test_without_a_checksum_the_next_download_starts_over_if_the_file_is_another(at_gitlab: Place):
    run = upload_without_checksum(at_gitlab)["info"]
    at_gitlab.proxy.faults.cut_downloads = [CUT, 0, 0, 0]
    with pytest.raises(GitlabError, match="could not download"):
        at_gitlab.download()
    url = at_gitlab.proxy.file_url(f"{run['experiment_id']}:{run['run_id']}", "train.jsonl")
    changed = ROWS.replace(b"responses", b"RESPONSES")
    requests.put(url, data=changed, timeout=60).raise_for_status()
    assert at_gitlab.download().read_bytes() == changed


def test_a_file_that_arrives_damaged_is_refused_and_what_was_there_stays(at_gitlab: Place):
    at_gitlab = at_gitlab.with_rows()
    at_gitlab.target.parent.mkdir(parents=True)
    at_gitlab.target.write_bytes(b"as it was")
    at_gitlab.proxy.faults.damage = True
    with pytest.raises(GitlabError, match=r"arrived damaged: its checksum is .*on upload it was"):
        at_gitlab.download()
    assert at_gitlab.target.read_bytes() == b"as it was"
    assert at_gitlab.left_beside_the_target() == ["rows.jsonl"]


def test_two_processes_do_not_write_into_one_download(at_gitlab: Place):
    at_gitlab = at_gitlab.with_rows()
    messages = []

    def second(*_: object) -> None:
        if not messages:
            with pytest.raises(GitlabError) as raised:
                at_gitlab.download()
            messages.append(str(raised.value))

    at_gitlab.download(progress=second)
    assert "another process is downloading" in messages[0]
    assert at_gitlab.target.read_bytes() == ROWS


# --- the token --------------------------------------------------------------------------------------------------------


def test_the_token_is_in_no_log_no_environment_and_not_with_strangers(
    at_gitlab: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "of another program")
    before = dict(os.environ)
    with caplog.at_level(logging.DEBUG):
        at_gitlab.upload()
        at_gitlab.download()
        at_gitlab.delete()
    assert "ml_models" in caplog.text
    assert TOKEN not in caplog.text
    assert dict(os.environ) == before
    asked = at_gitlab.proxy.requests
    assert all("Authorization" not in headers for _, path, headers in asked if "/object-store/" in path)
    assert all(headers["Authorization"] == f"Bearer {TOKEN}" for _, path, headers in asked if path.startswith("/api/"))


def test_an_entry_in_netrc_does_not_take_the_place_of_the_token(at_gitlab: Place, monkeypatch: pytest.MonkeyPatch):
    netrc = at_gitlab.folder / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    at_gitlab.with_rows().download()
    asked = [headers for _, path, headers in at_gitlab.proxy.requests if path.startswith("/api/")]
    assert {headers["Authorization"] for headers in asked} == {f"Bearer {TOKEN}"}


def test_a_server_that_repeats_the_token_does_not_get_it_into_a_message(at_gitlab: Place):
    at_gitlab.proxy.faults.refusals["model-versions/get"] = (400, {"error_code": "X", "message": f"bad {TOKEN}"})
    with pytest.raises(GitlabError) as raised:
        at_gitlab.download()
    assert str(raised.value).endswith("the registry answered 400 (bad ****)")
