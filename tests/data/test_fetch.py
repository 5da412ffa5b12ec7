# SPDX-License-Identifier: Apache-2.0
"""Which registry a missing dataset comes from, and what is said when it cannot."""

from dataclasses import replace

import pytest

from nemo_gym._config.dataset_types import DatasetConfig
from nemo_gym._data.sources import (
    CannotFetch,
    MissingDatasets,
    Source,
    choose_registry,
    fetch_missing,
    raise_if_missing,
)
from nemo_gym.errors import GymError

HUB = {"repo_id": "org/set", "artifact_fpath": "train.jsonl"}
GITLAB = {"dataset_name": "set", "version": "0.0.1", "artifact_fpath": "train.jsonl"}


def source(path, **places):
    return Source("agent", DatasetConfig(name="s", type="example", jsonl_fpath=str(path), **places), path)


def in_hub(path):
    return source(path, source={"type": "huggingface", **HUB})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("places", "preferred", "registry"),
    [
        ({"huggingface_identifier": HUB, "gitlab_identifier": GITLAB}, "huggingface", "huggingface"),
        ({"huggingface_identifier": HUB, "gitlab_identifier": GITLAB}, "gitlab", "gitlab"),
        ({"gitlab_identifier": GITLAB}, "huggingface", "gitlab"),
        ({"source": {"type": "huggingface", **HUB}}, "gitlab", "huggingface"),
        ({}, "huggingface", None),
    ],
)
def test_the_preferred_registry_counts_where_there_is_a_choice(tmp_path, places, preferred, registry):
    assert choose_registry(source(tmp_path / "t.jsonl", **places).dataset, preferred) == registry


def test_only_what_is_missing_is_fetched_and_each_file_once(tmp_path):
    (tmp_path / "there.jsonl").touch()
    fetched = []

    def fetch(dataset, path):
        fetched.append((dataset.huggingface_identifier.repo_id, path.name))
        path.touch()
        return path

    sources = [in_hub(tmp_path / name) for name in ("there.jsonl", "a.jsonl", "a.jsonl")]
    said = []
    fetch_missing([*sources, source(tmp_path / "nowhere.jsonl")], "huggingface", {"huggingface": fetch}, said.append)
    assert fetched == [("org/set", "a.jsonl")]
    assert "Hugging Face org/set" in said[0]


def test_a_registry_that_nobody_can_reach_is_named_only_when_it_is_needed(tmp_path):
    (tmp_path / "t.jsonl").touch()
    fetch_missing([in_hub(tmp_path / "t.jsonl")], "huggingface", {}, print)
    with pytest.raises(CannotFetch, match=r"a\.jsonl.*Hugging Face org/set, file train\.jsonl"):
        fetch_missing([in_hub(tmp_path / "a.jsonl")], "huggingface", {}, print)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("preferred", "fetchers"), [("huggingface", ["huggingface"]), ("gitlab", ["huggingface"]), ("gitlab", ["gitlab"])]
)
def test_a_fetch_that_fails_says_what_of_where_and_what_else_to_do(tmp_path, preferred, fetchers):
    def fail(dataset, path):
        raise GymError("the connection failed.\nhint: check the network")

    both = source(tmp_path / "a.jsonl", huggingface_identifier=HUB, gitlab_identifier=GITLAB)
    missing = replace(both, prepare_command="python make.py example")
    with pytest.raises(CannotFetch) as raised:
        fetch_missing([missing], preferred, dict.fromkeys(fetchers, fail), print)
    said = str(raised.value)
    other = "gitlab" if preferred == "huggingface" else "huggingface"
    assert "a.jsonl (example dataset 's' of 'agent')" in said
    assert ("Hugging Face org/set, file train.jsonl" if preferred == "huggingface" else "GitLab set 0.0.1") in said
    assert ("the connection failed" if preferred in fetchers else "`mlflow_tracking_uri`") in said
    assert f"hint: `+data_source={other}` fetches" in said
    assert "hint: `python make.py example` writes" in said


def test_all_missing_files_are_listed_with_a_way_to_get_them(tmp_path):
    sources = [in_hub(tmp_path / "a.jsonl"), source(tmp_path / "b.jsonl")]
    with pytest.raises(MissingDatasets, match="--download") as raised:
        raise_if_missing(sources)
    assert isinstance(raised.value, FileNotFoundError)
    assert all(str(one.path) in str(raised.value) for one in sources)
