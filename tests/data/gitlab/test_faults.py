# SPDX-License-Identifier: Apache-2.0
"""Registries that fail, refuse or lie, and what becomes of the token: a message, and nothing half-done."""

import logging
import os
from typing import Any

import pytest

from nemo_gym._data import gitlab
from nemo_gym._data.gitlab_api import Api, GitlabError, RegistrySettings
from nemo_gym._data.gitlab_files import compute_checksum
from tests.data.gitlab.conftest import ROWS, Place
from tests.support.gitlab_proxy import TOKEN

pytestmark = pytest.mark.slow


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
    assert "could not undo version 0.0.2" in said[0]
    assert "upload to it again" in said[0]
    at_gitlab.proxy.faults.cut_uploads = 0
    at_gitlab.upload("0.0.2")
    assert at_gitlab.download("0.0.2").read_bytes() == ROWS


def test_an_upload_that_comes_back_different_does_not_count(at_gitlab: Place):
    at_gitlab.proxy.faults.damage = True
    with pytest.raises(GitlabError, match=r"what was read back differs.*instead of"):
        at_gitlab.upload()
    assert at_gitlab.model() is None


def test_a_second_file_that_comes_back_different_goes_and_the_first_stays(at_mlflow: Place, monkeypatch):
    at_mlflow.upload()
    second = at_mlflow.file("validation.jsonl", b"{}\n")
    monkeypatch.setattr(
        "nemo_gym._data.gitlab_files.HttpFiles.checksum", lambda self, path: compute_checksum(at_mlflow.source)
    )
    with pytest.raises(GitlabError, match="read back differs"):
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


def test_a_missing_token_is_reported(at_gitlab: Place):
    settings = RegistrySettings(at_gitlab.proxy.uri)
    with pytest.raises(GitlabError, match="asks for a token: 401"):
        gitlab.download(at_gitlab.name, "0.0.1", "train.jsonl", at_gitlab.target, settings)


def test_a_project_that_is_not_there_is_told_from_a_dataset_that_is_not(at_gitlab: Place):
    uri = at_gitlab.proxy.uri.replace("/42/", "/43/")
    with pytest.raises(GitlabError, match=r"there is nothing at http.*404 Project Not Found.*\nhint: GitLab's URI"):
        gitlab.download(at_gitlab.name, "0.0.1", "x", at_gitlab.target, RegistrySettings(uri, TOKEN, pauses_s=()))


def test_a_page_that_is_not_mlflow_is_found_out(at_mlflow: Place):
    elsewhere = RegistrySettings(f"{at_mlflow.proxy.mlflow}/health?", pauses_s=())
    with pytest.raises(GitlabError, match=r"is not MLflow's API.\nhint: GitLab's URI"):
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
    with pytest.raises(GitlabError, match=r"the registry is failing: 503 \(busy\)"):
        at_gitlab.download()


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
