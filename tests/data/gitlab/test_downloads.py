# SPDX-License-Identifier: Apache-2.0
"""Downloads that break: taken up where they broke, if that can be told, and never mixed with another file."""

from typing import Any

import pytest
import requests

from nemo_gym._data.gitlab_api import GitlabError
from tests.data.gitlab.conftest import ROWS, Place

pytestmark = pytest.mark.slow

CUT = 1 << 17


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
    place.put("empty.jsonl", b"")
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
    requests.put(url, data=changed, timeout=500).raise_for_status()
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
