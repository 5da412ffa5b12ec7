# SPDX-License-Identifier: Apache-2.0
"""`ng_prepare_data` for `example_multi_step` as its page shows it, with the rows that are shipped and without them."""

import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants

from nemo_gym import PARENT_DIR
from nemo_gym._util.jsonl_files import read_rows
from tests.support.fake_hub import hub as hub  # a fixture
from tests.support.in_process import said_by
from tests.support.small_servers import free_port

pytestmark = [
    pytest.mark.filterwarnings("ignore:dataset .*deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),
]

SERVER = Path("resources_servers/example_multi_step")
DATA = SERVER / "data"
REPOSITORY = "nvidia/Nemotron-RL-instruction_following"
FILES = {"train": "instruction_following.jsonl", "validation": "if_validation.jsonl"}
ROW = b'{"responses_create_params": {"input": "hi"}}\n'


@pytest.fixture
def work(tmp_path, monkeypatch, hub) -> Path:
    """A folder with the server's config and data, in which nobody else writes."""
    monkeypatch.chdir(tmp_path)
    for name in ("configs", "data"):
        shutil.copytree(PARENT_DIR / SERVER / name, SERVER / name, ignore=shutil.ignore_patterns("*_prepare.jsonl"))
    return tmp_path


@pytest.fixture
def prepare(monkeypatch, capsys):
    """Run the command of the page, with further words."""
    configs = f"{SERVER}/configs/example_multi_step.yaml,responses_api_models/openai_model/configs/openai_model.yaml"
    words = (f"+config_paths=[{configs}]", "+output_dirpath=data/example_multi_step", "+mode=train_preparation")
    return lambda *more: said_by(monkeypatch, capsys, "ng_prepare_data", *words, "+should_download=true", *more)


def name_other_files():
    """Let the config name files that are nowhere: those that are shipped would be found in the clone, too."""
    config = SERVER / "configs" / "example_multi_step.yaml"
    config.write_text(config.read_text().replace(f"{DATA}/", "rows/"))


def test_the_shipped_rows_are_prepared_without_any_registry(work, prepare, hub):
    metrics = {split: (DATA / f"{split}_metrics.json").read_bytes() for split in FILES}
    said = prepare()
    assert said.code == 0, said.err
    for split, count in {"train": 100, "validation": 20}.items():
        assert len(list(read_rows(Path("data/example_multi_step") / f"{split}.jsonl"))) == count
        assert f"not downloaded from Hugging Face {REPOSITORY}, file {FILES[split]}" in said.out
        assert (DATA / f"{split}_metrics.json").read_bytes() == metrics[split]
    assert hub.received == []


def test_rows_that_are_not_those_of_the_metrics_file_are_told(work, prepare):
    rows = (DATA / "train.jsonl").read_bytes().splitlines(keepends=True)
    (DATA / "train.jsonl").write_bytes(b"".join(rows[:-1]))
    said = prepare()
    assert said.code == 1
    assert "Number of examples: was 100, is 99" in said.err


def test_what_is_missing_is_fetched_once(work, prepare, hub):
    name_other_files()
    hub.add_dataset(REPOSITORY, {FILES["train"]: ROW * 3, FILES["validation"]: ROW * 2})
    said = prepare()
    assert said.code == 0, said.err
    assert Path("rows/train.jsonl").read_bytes() == ROW * 3
    assert Path("rows/validation.jsonl").read_bytes() == ROW * 2
    asked = len(hub.received)
    assert prepare().code == 0
    assert len(hub.received) == asked


def test_a_hub_that_cannot_be_reached_is_told_with_the_dataset_and_what_to_do(work, prepare, hub, monkeypatch):
    name_other_files()
    nowhere = f"http://127.0.0.1:{free_port()}"
    for name in ("ENDPOINT", "HUGGINGFACE_CO_URL_TEMPLATE"):
        monkeypatch.setattr(constants, name, getattr(constants, name).replace(hub.url, nowhere))
    said = prepare()
    assert said.code == 1
    for text in (
        "rows/train.jsonl (train dataset 'train' of 'example_multi_step_simple_agent') is missing",
        f"Hugging Face {REPOSITORY}, file {FILES['train']}",
        "the connection failed",
        "hint: check the network and HF_ENDPOINT",
        "hint: `+data_source=gitlab` fetches rows/train.jsonl from GitLab example_multi_step 0.0.1",
    ):
        assert text in said.err
    assert "Traceback" not in said.err


def test_gitlab_without_its_address_is_told_for_all_datasets_at_once(work, prepare):
    name_other_files()
    said = prepare("+data_source=gitlab")
    assert said.code == 1
    for split in FILES:
        assert f"GitLab example_multi_step 0.0.1, file example_multi_step/{split}.jsonl" in said.err
    assert "`mlflow_tracking_uri` and `mlflow_tracking_token`" in said.err
    assert "`+data_source=huggingface`" in said.err
