# SPDX-License-Identifier: Apache-2.0
"""The tasks of `gym eval run` without `--input`: rows of the config's own datasets, no more than are needed."""

import json
import os

import pytest
from omegaconf import OmegaConf

from nemo_gym import train_data_utils
from nemo_gym.cli.eval.run_settings import EvalRunConfig, choose_input, drop_prepared_data_on_error
from nemo_gym.errors import ConfigError
from nemo_gym.train_data_utils import MissingDatasets, OffendingRows
from tests.support.fake_hub import hub as hub  # a fixture


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["gym"])


def config(*datasets, paths=()):
    agent = {"entrypoint": "app.py", "datasets": list(datasets)}
    return OmegaConf.create({"config_paths": list(paths), "player": {"responses_api_agents": {"simple_agent": agent}}})


def dataset(type, **changes):
    return {"name": type, "type": type, "jsonl_fpath": f"{type}.jsonl", "license": "MIT", **changes}


def write(path, *rows):
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))


def asks(text):
    return {"responses_create_params": {"input": text}}


def chosen(whole, **settings):
    """The inputs that are played, where they were put, and what was said."""
    said = []
    path = choose_input(EvalRunConfig(output_jsonl_fpath="runs/r.jsonl", **settings), whole, said.append)
    with open(path) as file:
        rows = [json.loads(line) for line in file]
    return [row["responses_create_params"]["input"] for row in rows], path, " ".join(said)


def test_without_a_split_the_examples_are_played_and_that_is_said(tmp_path):
    write(tmp_path / "example.jsonl", asks("a"), asks("b"))
    inputs, path, said = chosen(config(dataset("train"), dataset("example")))
    assert inputs == ["a", "b"]
    assert path == "runs/r/preprocessed_datasets/example.jsonl"
    assert "running the 2 example rows" in said


def test_a_split_takes_its_own_datasets_only(tmp_path):
    write(tmp_path / "train.jsonl", asks("a"))
    inputs, _, said = chosen(config(dataset("train", num_repeats=2), dataset("validation")), split="train")
    assert (inputs, said) == (["a", "a"], "")


def test_an_agent_that_is_named_plays_its_own_datasets_only(tmp_path):
    write(tmp_path / "example.jsonl", asks("a"))
    write(tmp_path / "other.jsonl", asks("b"))
    both = OmegaConf.merge(
        config(dataset("example")),
        {
            name: {"responses_api_agents": {"simple_agent": {"entrypoint": "app.py", "datasets": datasets}}}
            for name, datasets in (("rival", [dataset("example", jsonl_fpath="other.jsonl")]), ("idle", []))
        },
    )
    assert chosen(both)[0] == ["a", "b"]
    inputs, path, _ = chosen(both, agent_name="rival")
    assert (inputs, path) == (["b"], "runs/r/preprocessed_datasets/example_rival.jsonl")
    with pytest.raises(ConfigError, match=r"'idle' has no example dataset; there are some for 'player', 'rival'"):
        chosen(both, agent_name="idle")


def test_an_agent_without_datasets_plays_those_of_another_in_the_same_resources_server(tmp_path):
    write(tmp_path / "example.jsonl", asks("a"))
    write(tmp_path / "other.jsonl", asks("b"))
    agents = {
        "player": ("shop", [dataset("example")]),
        "second": ("shop", [dataset("example")]),
        "stranger": ("bank", [dataset("example", jsonl_fpath="other.jsonl")]),
        "program": ("shop", []),
        "lost": ("harbour", []),
    }
    blocks = {
        name: {"entrypoint": "app.py", "datasets": datasets, "resources_server": {"name": server}}
        for name, (server, datasets) in agents.items()
    }
    whole = OmegaConf.create({name: {"responses_api_agents": {"simple_agent": one}} for name, one in blocks.items()})
    inputs, path, said = chosen(whole, agent_name="program")
    assert inputs == ["a"], "once, though two agents have it"
    with open(path) as file:
        assert [json.loads(line)["agent_ref"]["name"] for line in file] == ["program"]
    assert "agent 'program' has no example dataset: running that of 'player', in the same server" in said
    with pytest.raises(ConfigError, match=r"'lost' has no example dataset"):
        chosen(whole, agent_name="lost")


def test_repeats_of_dataset_and_command_line_are_said_to_multiply(tmp_path):
    write(tmp_path / "train.jsonl", asks("a"))
    *_, said = chosen(config(dataset("train", num_repeats=2)), split="train", num_repeats=3)
    assert "--num-repeats comes on top" in said


def test_a_limit_reads_no_further_than_it_must(tmp_path):
    write(tmp_path / "train.jsonl", asks("a"), asks("b"), "this is no row\n")
    inputs, path, _ = chosen(config(dataset("train")), split="train", limit=2)
    assert inputs == ["a", "b"]
    assert path.endswith("train_first_2.jsonl"), "it must not pass for the whole split"
    with pytest.raises(OffendingRows, match=r"train\.jsonl: row 3: not JSON"):
        chosen(config(dataset("train")), split="train")


def test_an_input_that_is_named_is_taken_as_it_is(tmp_path):
    write(tmp_path / "mine.jsonl", asks("mine"))
    inputs, path, _ = chosen(config(dataset("example")), input_jsonl_fpath="mine.jsonl")
    assert (inputs, path) == (["mine"], str(tmp_path / "mine.jsonl"))
    assert not (tmp_path / "runs").exists()


def test_a_dataset_that_is_missing_is_fetched(hub, monkeypatch):
    def fetch(wanted, path):
        write(path, asks("fetched"))
        return path

    whole = config(dataset("train", source={"type": "huggingface", "repo_id": "org/set"}))
    with pytest.raises(Exception, match="org/set"):
        chosen(whole, split="train")
    monkeypatch.setitem(train_data_utils.FETCHERS, "huggingface", fetch)
    assert chosen(whole, split="train")[0] == ["fetched"]


def test_a_benchmark_is_played_by_default_with_its_prompt_or_with_the_one_given(tmp_path):
    write(tmp_path / "b.jsonl", {"question": "why?"})
    (tmp_path / "p.yaml").write_text("user: 'Q: {question}'\n")
    benchmark = {"name": "b", "type": "benchmark", "jsonl_fpath": "b.jsonl", "prepare_script": "p.py"}
    whole = config({**benchmark, "prompt_config": "p.yaml"}, dataset("example"))
    inputs, _, said = chosen(whole)
    assert inputs == [[{"role": "user", "content": "Q: why?"}]]
    assert "benchmark rows" in said
    path = choose_input(EvalRunConfig(output_jsonl_fpath="r.jsonl", prompt_config="other.yaml"), whole, print)
    with open(path) as file:
        assert "responses_create_params" not in json.loads(file.readline()), "left to the prompt that was asked for"


def test_a_benchmark_that_is_not_prepared_says_what_to_run():
    benchmark = {"name": "b", "type": "benchmark", "jsonl_fpath": "b.jsonl", "prepare_script": "p.py"}
    with pytest.raises(MissingDatasets, match="gym eval prepare --benchmark aime24"):
        chosen(config(benchmark, paths=["benchmarks/aime24/config.yaml"]), split="benchmark")


def test_a_config_without_datasets_asks_for_an_input():
    with pytest.raises(ConfigError, match="name a file with --input"):
        chosen(config())


def test_a_run_that_is_refused_leaves_no_prepared_data(tmp_path):
    write(tmp_path / "example.jsonl", asks("a"))
    settings = EvalRunConfig(output_jsonl_fpath="runs/r.jsonl")

    def refuse():
        with drop_prepared_data_on_error(settings):
            assert os.path.exists(choose_input(settings, config(dataset("example")), print))
            raise ConfigError("this run cannot be resumed")

    with pytest.raises(ConfigError):
        refuse()
    assert not os.path.exists("runs/r")
    _, prepared, _ = chosen(config(dataset("example")))
    with pytest.raises(ConfigError):
        refuse()
    assert os.path.exists(prepared), "an earlier run's stays"
