# SPDX-License-Identifier: Apache-2.0
"""The datasets of a config, as a program prepares them."""

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from pydantic import ValidationError

from nemo_gym import train_data_utils
from nemo_gym.config_types import ConfigError
from nemo_gym.train_data_utils import (
    DatasetMetrics,
    MetricsConflict,
    MissingDatasets,
    OffendingRows,
    TrainDataProcessor,
    TrainDataProcessorConfig,
    dataset_scope,
    write_evaluation_input,
)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["program"])


def config(*datasets, mode="train_preparation", **settings):
    agent = {"entrypoint": "app.py", "datasets": list(datasets)}
    return OmegaConf.create(
        {
            "output_dirpath": "out",
            "mode": mode,
            **settings,
            "game": {"resources_servers": {"game": {"entrypoint": "app.py", "domain": "games"}}},
            "player": {"responses_api_agents": {"simple_agent": agent}},
            "idler": {"responses_api_agents": {"simple_agent": {"entrypoint": "app.py"}}},
        }
    )


def dataset(type="train", name=None, **changes):
    name = name or type
    return {"name": name, "type": type, "jsonl_fpath": f"data/{name}.jsonl", "license": "MIT", **changes}


def write(name, *rows):
    path = Path("data") / f"{name}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def asks(text):
    return {"responses_create_params": {"input": text}}


def test_the_settings_have_the_defaults_of_the_contract():
    settings = TrainDataProcessorConfig(output_dirpath="out", mode="example_validation")
    assert settings.model_dump() == {
        "output_dirpath": "out",
        "mode": "example_validation",
        "should_download": False,
        "data_source": "huggingface",
        "overwrite_metrics_conflicts": False,
    }
    with pytest.raises(ValidationError):
        TrainDataProcessorConfig(output_dirpath="out", mode="training")


def test_each_mode_is_about_its_own_datasets(tmp_path):
    for name in ("train", "validation", "example"):
        write(name, asks(name))
    whole = config(dataset("train"), dataset("validation"), dataset("example"))
    collated = TrainDataProcessor().run(whole)
    assert [one.path.name for one in collated.types] == ["train.jsonl", "validation.jsonl"]
    whole.mode = "example_validation"
    collated = TrainDataProcessor().run(whole)
    assert [one.path.name for one in collated.types] == ["example.jsonl"]
    (row,) = [json.loads(line) for line in (tmp_path / "out" / "example.jsonl").read_text().splitlines()]
    assert row == {**asks("example"), "agent_ref": {"type": "responses_api_agents", "name": "player"}}


def test_the_scope_names_agents_with_and_without_data():
    scope = dataset_scope(config(dataset("train")), ["train"])
    assert (scope.agents_with_data, scope.agents_without_data) == (("player",), ("idler",))
    assert scope.servers == ("game", "player", "idler")


def test_a_config_without_such_datasets_is_an_error_that_says_so():
    with pytest.raises(ConfigError, match="no dataset of type example"):
        TrainDataProcessor().run(config(dataset("train"), mode="example_validation"))


def test_missing_files_are_named_before_anything_is_done(tmp_path):
    write("train", asks("a"))
    with pytest.raises(
        MissingDatasets, match=r"data/validation\.jsonl \(validation dataset 'validation' of 'player'\)"
    ):
        TrainDataProcessor().run(config(dataset("train"), dataset("validation")))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("should_download", [False, True])
def test_a_missing_file_is_told_with_the_script_that_writes_it(should_download):
    made = dataset(prepare_script="make.py")
    with pytest.raises(MissingDatasets, match=r"hint: `python make\.py train` writes data/train\.jsonl"):
        TrainDataProcessor().run(config(made, should_download=should_download))


def test_what_is_missing_is_fetched_when_asked(monkeypatch, tmp_path):
    def fetch(wanted, path):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(asks(wanted.huggingface_identifier.repo_id)) + "\n")
        return path

    monkeypatch.setitem(train_data_utils.FETCHERS, "huggingface", fetch)
    whole = config(dataset("train", source={"type": "huggingface", "repo_id": "org/set"}))
    with pytest.raises(MissingDatasets, match="--download"):
        TrainDataProcessor().run(whole)
    whole.should_download = True
    TrainDataProcessor().run(whole)
    assert "org/set" in (tmp_path / "out" / "train.jsonl").read_text()


def test_a_bad_row_fails_it(tmp_path):
    path = write("train", asks("a"), {"responses_create_params": {}})
    with pytest.raises(OffendingRows, match=rf"{path}: row 2: Field required \(responses_create_params\.input\)"):
        TrainDataProcessor().run(config(dataset("train")))
    assert not (tmp_path / "out" / "train.jsonl").exists()


def test_changed_data_is_a_conflict_until_it_is_accepted():
    write("train", asks("a"))
    TrainDataProcessor().run(config(dataset("train")))
    TrainDataProcessor().run(config(dataset("train", license="TBD")))
    write("train", asks("a"), asks("b"))
    with pytest.raises(MetricsConflict, match="Number of examples: was 1, is 2"):
        TrainDataProcessor().run(config(dataset("train")))
    TrainDataProcessor().run(config(dataset("train"), overwrite_metrics_conflicts=True))
    TrainDataProcessor().run(config(dataset("train")))


def test_a_metrics_file_can_be_read_as_a_model(tmp_path):
    write("train", {**asks("two words"), "level": "easy"})
    TrainDataProcessor().run(config(dataset("train")))
    metrics = DatasetMetrics.model_validate_json((tmp_path / "data" / "train_metrics.json").read_text())
    assert metrics.number_of_examples == 1
    assert metrics.json_dumped_number_of_words.average == 3.0
    assert metrics.level == {"unique_count": 1, "total_count": 1}
    assert metrics.name == "train"


def test_benchmark_rows_get_their_prompt(tmp_path):
    write("b", {"question": "why?"})
    (tmp_path / "p.yaml").write_text("user: 'Q: {question}'\n")
    benchmark = {"name": "b", "type": "benchmark", "jsonl_fpath": "data/b.jsonl", "prepare_script": "p.py"}
    TrainDataProcessor().run(config({**benchmark, "prompt_config": "p.yaml"}))
    (row,) = [json.loads(line) for line in (tmp_path / "out" / "benchmark.jsonl").read_text().splitlines()]
    assert row["responses_create_params"]["input"] == [{"role": "user", "content": "Q: why?"}]
    assert row["prompt_config_used"] == "p.yaml"


@pytest.mark.parametrize(
    ("paths", "command"),
    [
        (["benchmarks/aime24/config.yaml"], "gym eval prepare --benchmark aime24"),
        (["resources_servers/x/configs/x.yaml"], "gym eval prepare --config resources_servers/x/configs/x.yaml"),
    ],
)
def test_data_that_was_never_prepared_names_the_command_that_does_it(paths, command):
    benchmark = {"name": "b", "type": "benchmark", "jsonl_fpath": "data/b.jsonl", "prepare_script": "p.py"}
    scope = dataset_scope(config(benchmark, config_paths=paths), ["benchmark"])
    with pytest.raises(MissingDatasets, match=rf"is not prepared\nhint: {command}"):
        write_evaluation_input(scope, Path("in.jsonl"))
