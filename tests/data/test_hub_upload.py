# SPDX-License-Identifier: Apache-2.0
"""Uploads by the real client to a Hub that speaks its protocol: everything is done, or nothing is left behind."""

import dataclasses

import pytest

from nemo_gym._data.dataset_rows import OffendingRows
from nemo_gym._data.hub import Hub, HubError
from nemo_gym._data.hub_upload import HubUpload, Uploaded, inspect, read_back, upload
from nemo_gym._data.lines import DataFileError
from tests.support.fake_hub import hub as hub  # a fixture
from tests.support.hub_store import READER, WRITER, git_oid, sha256

# The client library uploads large files in a way that its HTTP library will not have for ever.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

SMALL = b'{"responses_create_params": {"input": "hi"}}\n'
LARGE = SMALL * 200  # goes the way of large files
COLLECTION = "org/sets-68abc"
SET = "org/set"


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(LARGE)
    return path


@pytest.fixture
def wanted(hub, rows):
    hub.add_collection(COLLECTION)
    return HubUpload(rows, SET, COLLECTION)


def uploading(hub, wanted, token=WRITER, **changes):
    said = []
    done = upload(Hub(token), dataclasses.replace(wanted, **changes), said.append)
    return done, said


def changed(hub):
    """The requests that change something on the Hub."""
    return [(verb, path) for verb, path, _ in hub.received if verb not in ("GET", "HEAD") and "paths-info" not in path]


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["in the commit", "as a large file"])
def test_a_file_goes_into_a_new_private_repository_and_the_collection(hub, wanted, content):
    wanted.path.write_bytes(content)
    done, _ = uploading(hub, wanted)
    assert hub.datasets[SET].private
    assert hub.datasets[SET].files()["rows.jsonl"] == content
    assert hub.collections[COLLECTION] == [SET]
    assert done == Uploaded(SET, "rows.jsonl", hub.datasets[SET].refs["main"], f"{hub.url}/datasets/{SET}")


def test_a_file_in_an_existing_repository_is_replaced_by_a_commit_and_others_stay(hub, wanted):
    dataset = hub.add_dataset(SET, {"rows.jsonl": b"old", "README.md": b"about"})
    _, said = uploading(hub, wanted, commit_message="Better rows", commit_description="200 of them")
    assert dataset.files() == {".gitattributes": b"", "rows.jsonl": LARGE, "README.md": b"about"}
    assert not dataset.private
    assert dataset.messages[-1] == ("Better rows", "200 of them")
    assert said == ["'rows.jsonl' of 'org/set', 3 bytes, is replaced; its history keeps it"]


def test_without_a_message_the_client_writes_one(hub, wanted):
    uploading(hub, wanted)
    summary, description = hub.datasets[SET].messages[-1]
    assert "rows.jsonl" in summary
    assert description == ""


@pytest.mark.parametrize("content", [SMALL, LARGE])
def test_the_same_file_is_not_uploaded_again(hub, wanted, content):
    wanted.path.write_bytes(content)
    first, _ = uploading(hub, wanted)
    hub.received.clear()
    again, _ = uploading(hub, wanted)
    assert changed(hub) == []
    assert again == dataclasses.replace(first, is_changed=False)


def test_rows_of_train_without_a_required_field_are_all_named_and_nothing_is_asked_of_the_hub(hub, wanted):
    wanted.path.write_bytes(SMALL + b'{"other": 1}\n' * 2 + b"not json\n")
    with pytest.raises(OffendingRows) as raised:
        uploading(hub, wanted)
    assert str(raised.value).splitlines()[:2] == [
        "3 of 4 rows are not valid for split 'train'; nothing was uploaded.",
        f"{wanted.path}: rows 2–3: missing (responses_create_params)",
    ]
    assert "row 4: not JSON" in str(raised.value)
    assert hub.received == []


def test_a_training_set_without_rows_is_refused(hub, wanted):
    wanted.path.write_bytes(b"\n")
    with pytest.raises(OffendingRows, match="has no rows; nothing was uploaded"):
        uploading(hub, wanted)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_rows_of_other_splits_are_not_checked(hub, wanted, split):
    wanted.path.write_bytes(b'{"other": 1}\n')
    uploading(hub, wanted, split=split)
    assert hub.datasets[SET].files()["rows.jsonl"] == b'{"other": 1}\n'


def test_a_commit_can_go_to_a_branch_that_exists(hub, wanted):
    dataset = hub.add_dataset(SET)
    dataset.commit("next", {})
    uploading(hub, wanted, revision="next")
    assert dataset.files("next") == {"rows.jsonl": LARGE}
    assert "rows.jsonl" not in dataset.files()


@pytest.mark.parametrize("exists", [True, False])
def test_a_branch_that_does_not_exist_is_refused_before_anything_is_made(hub, wanted, exists):
    if exists:
        hub.add_dataset(SET)
    with pytest.raises(HubError, match=r"no branch '0.0.1'(.|\n)*its branches: main\n.*--storage gitlab"):
        uploading(hub, wanted, revision="0.0.1")
    assert changed(hub) == []


def test_a_pull_request_leaves_the_branch_as_it_is(hub, wanted):
    dataset = hub.add_dataset(SET)
    done, _ = uploading(hub, wanted, create_pr=True)
    assert done.pull_request == f"{hub.url}/datasets/{SET}/discussions/1"
    assert dataset.files("refs/pr/1")["rows.jsonl"] == LARGE
    assert "rows.jsonl" not in dataset.files()


def test_a_pull_request_has_a_branch_of_its_own_where_the_named_one_does_not_exist(hub, wanted):
    dataset = hub.add_dataset(SET)
    done, said = uploading(hub, wanted, create_pr=True, revision="my-branch")
    assert done.pull_request
    assert "rows.jsonl" in dataset.files("refs/pr/1")
    assert said == [
        "'org/set' has no branch 'my-branch': the pull request, which has its own branch, is opened against 'main'"
    ]


def test_whoever_may_not_write_can_open_a_pull_request(hub, wanted):
    hub.add_dataset(SET)
    done, said = uploading(hub, wanted, READER, create_pr=True)
    assert done.pull_request
    assert said == [f"'org/set' was not added to the collection {COLLECTION!r}: this token may not"]


def test_whoever_may_not_write_is_told_of_pull_requests(hub, wanted):
    hub.add_dataset(SET)
    with pytest.raises(HubError, match=r"this token lacks permission: 403(.|\n)*--create-pr"):
        uploading(hub, wanted, READER)
    assert len(hub.datasets[SET].commits) == 1


def test_a_pull_request_for_a_repository_that_nobody_made_is_refused(hub, wanted):
    with pytest.raises(HubError, match="no such repository"):
        uploading(hub, wanted, READER, create_pr=True)
    assert hub.datasets == {}


def test_a_wrong_token_is_refused_before_anything_is_made(hub, wanted):
    with pytest.raises(HubError, match="does not accept the token: 401"):
        uploading(hub, wanted, "hf_wrong")
    assert changed(hub) == []


def test_a_collection_that_does_not_exist_is_refused_before_anything_is_made(hub, wanted):
    with pytest.raises(HubError, match=r"no collection 'org/others-1'(.|\n)*hf_collection_slug"):
        uploading(hub, wanted, collection="org/others-1")
    assert changed(hub) == []


def test_a_name_that_differs_in_case_only_is_refused_before_anything_is_made(hub, wanted):
    hub.add_dataset("org/Set")
    with pytest.raises(HubError, match=r"has a dataset 'org/Set', whose name differs from 'org/set' in case"):
        uploading(hub, wanted)
    assert changed(hub) == []


def test_a_name_that_is_taken_by_what_nobody_may_see_is_refused(hub, wanted):
    hub.fail("POST", "/api/repos/create", 409)
    with pytest.raises(HubError, match="which this token may not see"):
        uploading(hub, wanted)
    assert hub.datasets == {}


def test_a_repository_made_for_an_upload_that_fails_half_way_is_taken_away(hub, wanted):
    hub.cut("PUT", "/lfs/", after_bytes=1000, times=1000)
    with pytest.raises(HubError, match=r"could not upload '.*rows.jsonl' to 'org/set': the connection failed"):
        uploading(hub, wanted)
    assert hub.datasets == {}
    assert hub.collections[COLLECTION] == []


def test_an_existing_repository_is_as_it_was_when_an_upload_fails_half_way(hub, wanted):
    dataset = hub.add_dataset(SET, {"rows.jsonl": b"old"})
    hub.fail("POST", "/commit/", 500, times=1000)
    with pytest.raises(HubError, match="is failing: 500"):
        uploading(hub, wanted)
    assert dataset.files()["rows.jsonl"] == b"old"
    assert hub.collections[COLLECTION] == []


def test_a_break_in_an_upload_is_mended(hub, wanted):
    hub.cut("PUT", "/lfs/", after_bytes=1000, times=2)
    uploading(hub, wanted)
    assert hub.datasets[SET].files()["rows.jsonl"] == LARGE


def test_a_hub_without_the_storage_that_the_client_expects_is_told_how_to_be_used(hub, wanted, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", False)
    with pytest.raises(HubError, match="hint: set HF_HUB_DISABLE_XET=1"):
        uploading(hub, wanted)
    assert hub.datasets == {}


def test_a_repository_that_cannot_be_taken_away_again_is_named(hub, wanted):
    hub.fail("POST", "/commit/", 500, times=1000)
    hub.fail("DELETE", "/api/repos/delete", 403)
    with pytest.raises(HubError, match=r"is failing: 500(.|\n)*'org/set', created for it, remains"):
        uploading(hub, wanted)


def test_a_repository_that_somebody_else_filled_meanwhile_is_not_taken_away(hub, wanted, monkeypatch):
    hub.fail("POST", "/commit/", 500, times=1000)
    api = Hub(WRITER).api
    made = type(api).create_repo

    def create_and_fill(self, *arguments, **options):
        created = made(self, *arguments, **options)
        hub.datasets[SET].commit("main", {"theirs.jsonl": b"{}"})
        return created

    monkeypatch.setattr(type(api), "create_repo", create_and_fill)
    with pytest.raises(HubError, match="created for it, remains"):
        uploading(hub, wanted)
    assert hub.datasets[SET].files() == {"theirs.jsonl": b"{}"}


def test_a_collection_that_refuses_is_told_and_the_upload_is_not_repeated_next_time(hub, wanted):
    hub.fail("POST", "/items", 403)
    with pytest.raises(HubError, match=r"the upload succeeded, but: (.|\n)*a second run does not repeat the upload"):
        uploading(hub, wanted)
    hub.received.clear()
    done, _ = uploading(hub, wanted)
    assert not done.is_changed
    assert hub.collections[COLLECTION] == [SET]
    assert [path for _, path in changed(hub)] == [f"/api/collections/{COLLECTION}/items"]


def test_a_hub_that_keeps_something_else_than_it_was_sent_is_found_out(hub, wanted, monkeypatch):
    monkeypatch.setattr(type(hub.add_dataset(SET)), "commit", _commit_of_other_rows)
    with pytest.raises(HubError, match="is not the file"):
        uploading(hub, wanted)


def _commit_of_other_rows(dataset, ref, files, summary="", description=""):
    dataset.commits["a" * 40] = {"rows.jsonl": b"other"}
    dataset.refs[ref] = "a" * 40
    return "a" * 40


def test_looking_changes_nothing_and_tells_what_would_be_done(hub, wanted):
    fresh = inspect(Hub(WRITER), wanted)
    assert (fresh.exists, fresh.branch, fresh.in_collection, fresh.file) == (False, "main", False, None)
    hub.add_dataset(SET, {"rows.jsonl": LARGE})
    hub.collections[COLLECTION].append(SET)
    there = inspect(Hub(WRITER), wanted)
    assert (there.exists, there.in_collection, there.is_same, there.file.size) == (True, True, True, len(LARGE))
    assert changed(hub) == []


def test_a_file_that_is_gone_is_named(hub, wanted):
    wanted.path.unlink()
    with pytest.raises((DataFileError, FileNotFoundError), match=r"rows\.jsonl"):
        uploading(hub, wanted)


@pytest.mark.parametrize("content", [SMALL, LARGE])
def test_reading_back_compares_every_byte(hub, wanted, content):
    wanted.path.write_bytes(content)
    done, _ = uploading(hub, wanted)
    read_back(Hub(WRITER), done, wanted.path)
    wanted.path.write_bytes(content[:-2] + b" \n")
    with pytest.raises(HubError, match=f"is not the file .*{sha256(content)} there"):
        read_back(Hub(WRITER), done, wanted.path)


def test_reading_back_goes_on_after_a_break(hub, wanted):
    done, _ = uploading(hub, wanted)
    hub.cut("GET", "/resolve/", after_bytes=3500)
    read_back(Hub(WRITER), done, wanted.path)
    assert any("Range" in headers for headers in hub.calls("GET", "/resolve/"))


def test_reading_back_reads_a_pull_request(hub, wanted):
    dataset = hub.add_dataset(SET)
    done, _ = uploading(hub, wanted, create_pr=True)
    read_back(Hub(WRITER), done, wanted.path)
    proposed = dataset.sha_of("refs/pr/1")
    assert done.commit == proposed != dataset.sha_of("main")
    assert hub.calls("GET", f"/resolve/{proposed}/rows.jsonl")
    dataset.commits[proposed]["rows.jsonl"] = b"other rows"
    with pytest.raises(HubError, match="is not the file"):
        read_back(Hub(WRITER), done, wanted.path)


def test_the_checksums_of_the_hub_are_those_of_git():
    assert git_oid(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"
