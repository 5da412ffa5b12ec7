# SPDX-License-Identifier: Apache-2.0
"""Datasets in a model registry: there and back, what is refused, and how they are deleted."""

import pytest
import requests

from nemo_gym._config.dataset_types import DatasetConfig
from nemo_gym._data.gitlab_api import GitlabError
from nemo_gym._data.gitlab_files import compute_checksum
from nemo_gym._data.sources import fetch_from_gitlab
from tests.data.gitlab.conftest import ROWS, Place
from tests.support.gitlab_proxy import TOKEN

pytestmark = [pytest.mark.thorough, pytest.mark.slow]


# --- there and back ---------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_what_was_uploaded_comes_back_the_same(place: Place):
    seen = []
    done = place.upload(progress=lambda sent, total: seen.append((sent, total)))
    assert (done.dataset, done.version, done.artifact) == (place.name, "0.0.1", "train.jsonl")
    assert done.checksum == compute_checksum(place.source)
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
    assert said == [f"version 0.0.1 of {place.name!r} exists: adding 'validation.jsonl' to its files"]
    assert place.download(artifact="validation.jsonl").read_bytes() == b"{}\n"
    assert place.download().read_bytes() == ROWS


def test_a_file_in_a_folder_is_downloaded_by_its_path(place: Place):
    place.upload()
    place.put("sub%20folder/other.jsonl", b"other\n")
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
    assert fetch_from_gitlab(at_gitlab.settings, dataset, at_gitlab.target).read_bytes() == ROWS


# --- what is refused --------------------------------------------------------------------------------------------------


def test_what_is_in_the_registry_is_not_replaced(place: Place):
    place = place.with_rows()
    with pytest.raises(GitlabError) as raised:
        place.upload(source=place.file("train.jsonl", b"other"))
    assert str(raised.value) == (
        f"version 0.0.1 of {place.name!r} exists and holds 'train.jsonl': files in the registry are never replaced.\n"
        "hint: upload it as a higher version than 0.0.1"
    )
    assert place.download().read_bytes() == ROWS


@pytest.mark.parametrize("version", ["1", "1.0", "v1.0.0", "1.0.0-rc1", "01.0.0", "latest", ""])
def test_a_version_has_three_numbers(at_gitlab: Place, version: str):
    with pytest.raises(GitlabError, match=r"is not a version.\nhint: .* x.x.x"):
        at_gitlab.upload(version)
    assert at_gitlab.proxy.requests == []


@pytest.mark.parametrize(("content", "message"), [(None, "is missing"), (b"", "is empty")])
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
    expected = f"has no dataset {other!r}.\nhint: there is {place.name!r}; case matters"
    for action in (place.download, place.delete):
        with pytest.raises(GitlabError) as raised:
            action(name=other)
        assert expected in str(raised.value)
    said: list[str] = []
    place.upload(name=other, notice=said.append)
    assert said == [f"the registry also has {place.name!r}, which is another dataset: case matters"]


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
        assert requests.get(url, timeout=500).status_code == 404


def test_nothing_is_deleted_without_a_yes(place: Place):
    place = place.with_rows()
    assert not place.delete(lambda _: False)
    assert place.download().read_bytes() == ROWS


def test_a_registry_that_only_says_it_deleted_is_found_out(at_gitlab: Place):
    at_gitlab = at_gitlab.with_rows()
    at_gitlab.proxy.faults.refusals["registered-models/delete"] = (200, {})
    with pytest.raises(GitlabError, match="still has it"):
        at_gitlab.delete()
