# SPDX-License-Identifier: Apache-2.0
"""Downloads by the real client from a Hub that speaks its protocol: whole or not at all, and resumed after a break."""

import io
import multiprocessing
import os
import re
import resource
import subprocess
import sys
import time

import pyarrow
import pyarrow.parquet
import pytest

from nemo_gym._config.dataset_types import DatasetConfig
from nemo_gym._data.hub import Hub, HubError
from nemo_gym._data.hub_download import download_artifact, download_split, download_splits, fetch_dataset, locate
from tests.support.fake_hub import (
    FakeHub,
    environment,
    hub as hub,  # a fixture
)
from tests.support.hub_store import READER, WRITER

ROWS = b"".join(b'{"n": %d}\n' % number for number in range(2000))
FILE = "/resolve/.*/rows.jsonl"


@pytest.fixture
def target(tmp_path):
    return tmp_path / "data" / "rows.jsonl"


def left_in(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def ranges(hub: FakeHub):
    return [headers.get("Range") for headers in hub.calls("GET", FILE)]


def test_a_public_dataset_needs_no_token(hub, target):
    hub.add_dataset("org/set", {"rows.jsonl": ROWS})
    download_artifact(Hub(), "org/set", "rows.jsonl", target)
    assert target.read_bytes() == ROWS
    assert all("Authorization" not in headers for _, _, headers in hub.received)
    assert left_in(target.parent) == ["rows.jsonl"]


def test_a_private_dataset_is_downloaded_with_a_token(hub, target):
    hub.add_dataset("org/set", {"in/small.jsonl": b"{}\n"}, private=True)
    assert download_artifact(Hub(READER), "org/set", "in/small.jsonl", target) == target
    assert target.read_bytes() == b"{}\n"


def test_a_private_dataset_without_a_token_is_not_there(hub, target):
    hub.add_dataset("org/set", {"rows.jsonl": ROWS}, private=True)
    with pytest.raises(HubError, match=r"no such repository, or it is private(.|\n)*hf_token"):
        download_artifact(Hub(), "org/set", "rows.jsonl", target)
    assert not target.parent.exists()


def test_a_wrong_token_is_refused_even_for_a_public_dataset_and_the_message_says_so(hub, target):
    hub.add_dataset("org/set", {"rows.jsonl": ROWS})
    with pytest.raises(HubError, match=r"does not accept the token: 401(.|\n)*public datasets need none"):
        download_artifact(Hub("hf_wrong"), "org/set", "rows.jsonl", target)
    assert not target.parent.exists()


def test_a_missing_artifact_is_named_with_the_closest_one(hub, target):
    hub.add_dataset("org/set", {"rows.jsonl": ROWS})
    with pytest.raises(HubError, match=r"'org/set' has no file 'Rows.jsonl'. Did you mean 'rows.jsonl'\?"):
        download_artifact(Hub(), "org/set", "Rows.jsonl", target)
    assert not target.parent.exists()


def test_a_repository_that_is_not_there_is_named(hub, target):
    with pytest.raises(HubError, match=r"'org/gone'.*no such repository"):
        download_split(Hub(), "org/gone", "train", target)


def test_a_name_that_is_none_is_refused(hub, target):
    with pytest.raises(HubError, match=r"could not find 'a' in the dataset 'org/a/b'.*Repo id"):
        download_artifact(Hub(), "org/a/b", "a", target)
    assert hub.received == []


def test_a_name_in_another_case_leads_to_the_same_dataset(hub, target):
    hub.add_dataset("Org/Set", {"rows.jsonl": ROWS})
    assert download_split(Hub(), "org/set", "train", target) == 2000


def test_a_revision_is_a_branch_or_a_commit(hub, target):
    dataset = hub.add_dataset("org/set", {"rows.jsonl": b'{"old": 1}\n'})
    first = dataset.refs["main"]
    dataset.commit("next", {"rows.jsonl": b'{"new": 1}\n'})
    download_artifact(Hub(), "org/set", "rows.jsonl", target, "next")
    assert target.read_bytes() == b'{"new": 1}\n'
    assert download_split(Hub(), "org/set", "train", target, first) == 1
    assert target.read_bytes() == b'{"old": 1}\n'
    with pytest.raises(HubError, match=r"revision '0.0.1'.*no such revision"):
        download_split(Hub(), "org/set", "train", target, "0.0.1")


def test_a_connection_that_is_cut_is_taken_up_where_it_broke(hub, target):
    hub.add_dataset("org/set", {"rows.jsonl": ROWS})
    hub.cut("GET", FILE, after_bytes=5500)
    download_artifact(Hub(), "org/set", "rows.jsonl", target)
    assert target.read_bytes() == ROWS
    assert ranges(hub)[0] is None
    assert re.fullmatch(r"bytes=[1-5]\d{3}-", ranges(hub)[1])


def test_what_was_received_before_the_network_failed_is_kept_for_the_next_call(hub, target):
    hub.add_dataset("org/set", {"rows.jsonl": ROWS})
    hub.cut("GET", FILE, after_bytes=5500)
    hub.cut("GET", FILE, times=1000)
    with pytest.raises(HubError, match=r"could not download 'rows.jsonl'(.|\n)*the same command resumes from there"):
        download_artifact(Hub(), "org/set", "rows.jsonl", target)
    assert not target.exists()
    hub.faults.clear()
    before = len(ranges(hub))
    download_artifact(Hub(), "org/set", "rows.jsonl", target)
    assert target.read_bytes() == ROWS
    assert len(ranges(hub)) == before + 1
    assert re.fullmatch(r"bytes=[1-5]\d{3}-", ranges(hub)[-1])
    assert left_in(target.parent) == ["rows.jsonl"]


def test_an_older_file_stays_until_the_new_one_is_whole(hub, target):
    target.parent.mkdir()
    target.write_bytes(b"old")
    hub.add_dataset("org/set", {"rows.jsonl": ROWS})
    hub.cut("GET", FILE, after_bytes=5500, times=1)
    hub.cut("GET", FILE, times=1000)
    with pytest.raises(HubError):
        download_artifact(Hub(), "org/set", "rows.jsonl", target)
    assert target.read_bytes() == b"old"


def test_what_was_kept_of_an_older_version_is_not_mixed_with_the_new_one(hub, target):
    dataset = hub.add_dataset("org/set", {"rows.jsonl": ROWS})
    hub.cut("GET", FILE, after_bytes=5500)
    hub.cut("GET", FILE, times=1000)
    with pytest.raises(HubError):
        download_artifact(Hub(), "org/set", "rows.jsonl", target)
    hub.faults.clear()
    dataset.commit("main", {"rows.jsonl": ROWS.upper()})
    download_artifact(Hub(), "org/set", "rows.jsonl", target)
    assert target.read_bytes() == ROWS.upper()
    assert left_in(target.parent) == ["rows.jsonl"]


def test_content_that_is_not_what_the_hub_announced_never_takes_its_place(hub, target):
    hub.add_dataset("org/set", {"rows.jsonl": ROWS})
    hub.cut("GET", FILE, after_bytes=5500)
    hub.cut("GET", FILE, times=1000)
    with pytest.raises(HubError, match="resumes from there"):
        download_artifact(Hub(), "org/set", "rows.jsonl", target)
    hub.faults.clear()
    [kept] = target.parent.glob(".rows.jsonl.download/*.part")
    kept.write_bytes(b"x" * 5000)  # as a bad disk or proxy may leave it
    with pytest.raises(HubError, match=r"'rows.jsonl' of 'org/set' arrived damaged"):
        download_artifact(Hub(), "org/set", "rows.jsonl", target)
    assert left_in(target.parent) == []
    download_artifact(Hub(), "org/set", "rows.jsonl", target)
    assert target.read_bytes() == ROWS


def test_a_hub_that_is_out_of_order_for_a_moment_is_asked_again(hub, target):
    hub.add_dataset("org/set", {"rows.jsonl": ROWS})
    hub.fail("HEAD", FILE, 503)
    hub.fail("GET", "/tree/", 502, times=2)
    assert download_split(Hub(), "org/set", "train", target) == 2000


def test_a_hub_that_stays_out_of_order_is_an_error(hub, target):
    hub.fail("GET", "/api/datasets/", 500, times=1000)
    with pytest.raises(HubError, match=r"is failing: 500"):
        download_split(Hub(), "org/set", "train", target)


def test_a_hub_that_cannot_be_reached_is_an_error(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)  # between attempts
    with pytest.raises(HubError, match=r"the connection failed(.|\n)*HF_ENDPOINT"):
        locate(Hub(endpoint="http://127.0.0.1:9"), "org/set", "rows.jsonl")


def test_a_split_is_jsonl_whatever_its_files_are(hub, target):
    table = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"n": 3}]), table)
    hub.add_dataset(
        "org/set",
        {
            "README.md": b"---\nconfigs: [{config_name: default, data_files: {validation: [x.*]}}]\n---\n",
            "x.csv": b"n\n1\n",
            "x.json": b'[{"n": 2}]',
            "x.parquet": table.getvalue(),
            "x.unknown": b"",
        },
    )
    assert download_split(Hub(), "org/set", "validation", target) == 3
    assert target.read_bytes() == b'{"n":1}\n{"n":2}\n{"n":3}\n'
    assert left_in(target.parent) == ["rows.jsonl"]


def test_a_split_that_is_not_there_is_named_with_those_that_are(hub, target):
    hub.add_dataset("org/set", {"train.jsonl": ROWS, "dev.jsonl": ROWS})
    with pytest.raises(HubError, match=r"no split 'test'. available: 'train', 'validation'"):
        download_split(Hub(), "org/set", "test", target)


def test_a_dataset_without_data_files_says_what_it_has(hub, target):
    hub.add_dataset("org/set", {"model.bin": b"x"})
    with pytest.raises(HubError, match=r"no data files of a known type(.|\n)*its files: model.bin"):
        download_split(Hub(), "org/set", "train", target)


def test_shards_that_arrived_before_a_failure_are_not_downloaded_again(hub, target):
    shards = {f"data/train-0000{number}-of-00003.jsonl": ROWS + b"%d\n" % number for number in range(3)}
    shards = {
        name: content.rsplit(b"\n", 2)[0] + b"\n" + b'{"n": "%s"}\n' % name.encode() for name, content in shards.items()
    }
    hub.add_dataset("org/set", shards)
    hub.cut("GET", "/resolve/.*00002-of", times=1000)
    with pytest.raises(HubError, match="resumes from there"):
        download_split(Hub(), "org/set", "train", target)
    assert not target.exists()
    hub.faults.clear()
    assert download_split(Hub(), "org/set", "train", target) == 3 * 2001
    assert target.read_bytes() == b"".join(shards.values())
    assert len(hub.calls("GET", "/resolve/.*00000-of")) == len(hub.calls("GET", "/resolve/.*00001-of")) == 1


def test_every_split_gets_a_file(hub, tmp_path):
    hub.add_dataset("org/set", {"train.jsonl": ROWS, "dev.csv": b"a\n1\n"})
    said = []
    written = download_splits(Hub(), "org/set", tmp_path, notice=said.append)
    assert written == {tmp_path / "train.jsonl": 2000, tmp_path / "validation.jsonl": 1}
    assert left_in(tmp_path) == ["train.jsonl", "validation.jsonl"]
    assert said == ["downloading split 'train' of 'org/set'", "downloading split 'validation' of 'org/set'"]


def test_two_downloads_to_one_place_at_once_do_not_mix(hub, target):
    hub.add_dataset("org/set", {"rows.jsonl": ROWS})
    download = (
        "from pathlib import Path; from nemo_gym._data.hub import Hub; from nemo_gym._data import hub_download;"
        f"hub_download.download_artifact(Hub(), 'org/set', 'rows.jsonl', Path({str(target)!r}))"
    )
    released = hub.hang("GET", FILE, after_bytes=5000)
    first = subprocess.Popen([sys.executable, "-c", download], env={**os.environ, **environment(hub, target.parent)})
    wait_until(lambda: hub.calls("GET", FILE))
    with pytest.raises(HubError, match="another process is downloading"):
        download_artifact(Hub(), "org/set", "rows.jsonl", target)
    released.set()
    assert first.wait(300) == 0
    assert target.read_bytes() == ROWS


def wait_until(condition):
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        multiprocessing.Event().wait(0.02)  # the fixture has taken the time out of `time.sleep`


def test_a_folder_in_the_place_of_the_target_is_refused_before_anything_is_downloaded(hub, target):
    hub.add_dataset("org/set", {"rows.jsonl": ROWS})
    target.mkdir(parents=True)
    with pytest.raises(HubError, match=r"rows.jsonl' is a folder(.|\n)*--output-dir"):
        download_artifact(Hub(), "org/set", "rows.jsonl", target)
    assert hub.calls("GET", FILE) == []


def test_a_file_that_cannot_be_written_is_no_fault_of_the_hub(hub, target):
    hub.add_dataset("org/set", {"rows.jsonl": ROWS})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            download_artifact(Hub(), "org/set", "rows.jsonl", target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not isinstance(raised.value, HubError)
    assert raised.value.filename.endswith(".part")


def test_a_dataset_of_a_config_is_fetched_by_its_file_or_the_split_of_its_type(hub, tmp_path):
    hub.add_dataset("org/set", {"dev.jsonl": b'{"a": 1}\n', "raw.jsonl": b'{"b": 1}\n'})
    whole = DatasetConfig(
        name="v",
        type="validation",
        license="MIT",
        jsonl_fpath="x",
        source={"type": "huggingface", "repo_id": "org/set"},
    )
    source = {"type": "huggingface", "repo_id": "org/set", "artifact_fpath": "raw.jsonl"}
    raw = DatasetConfig(name="e", type="example", jsonl_fpath="x", source=source)
    assert fetch_dataset(Hub(WRITER), whole, tmp_path / "v.jsonl").read_bytes() == b'{"a": 1}\n'
    assert fetch_dataset(Hub(WRITER), raw, tmp_path / "e.jsonl").read_bytes() == b'{"b": 1}\n'


def test_without_the_client_library_the_extra_is_named(monkeypatch, target):
    for name in ["huggingface_hub", *(name for name in sys.modules if name.startswith("huggingface_hub."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(HubError, match=r"pip install 'nemo-gym\[data\]'"):
        download_split(Hub(), "org/set", "train", target)
    with pytest.raises(HubError, match=r"pip install 'nemo-gym\[data\]'"):
        download_artifact(Hub(), "org/set", "rows.jsonl", target)
