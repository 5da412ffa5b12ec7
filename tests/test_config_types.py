# SPDX-License-Identifier: Apache-2.0
"""The shapes of a config: servers, references, datasets, exporters, dataset transfer, help."""

import pickle
import subprocess
import sys

import pytest
from omegaconf import OmegaConf
from pydantic import Field, ValidationError

from nemo_gym import config_types
from nemo_gym.config_types import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseNeMoGymCLIConfig,
    BaseRunServerInstanceConfig,
    BaseServerConfig,
    BenchmarkDatasetConfig,
    ConfigError,
    DatasetConfig,
    Domain,
    DownloadJsonlDatasetHuggingFaceConfig,
    GitlabDatasetSource,
    MLFlowConfig,
    ModelServerRef,
    ResourcesServerInstanceConfig,
    ResourcesServerRef,
    ResponsesAPIAgentServerInstanceConfig,
    ServerInstanceConfigTypeAdapter,
    ServerRefTypeAdapter,
    UploadJsonlDatasetHuggingFaceConfig,
    UploadJsonlDatasetHuggingFaceMaybeDeleteConfig,
    UploadRolloutsConfigMixin,
    WANDBConfig,
    is_almost_server,
    is_server_ref,
    maybe_get_server_instance_config,
)
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig

GITLAB = {"dataset_name": "d", "version": "0.0.1", "artifact_fpath": "a.jsonl"}
HUGGINGFACE = {"repo_id": "org/d"}


def dataset(**fields):
    return DatasetConfig(**{"name": "d", "type": "example", "jsonl_fpath": "d.jsonl", **fields})


def instance(kind, **fields):
    block = OmegaConf.create({kind: {"impl": {"entrypoint": "app.py", **fields}}})
    return maybe_get_server_instance_config("name", block)


def test_importing_the_types_loads_no_web_framework():
    code = "import nemo_gym.config_types, nemo_gym.global_config, sys; print([*sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("'fastapi'", "'aiohttp'", "'ray'", "'openai'", "'hydra'", "'pandas'"):
        assert heavy not in loaded


def test_names_that_others_reach_through_this_module_are_there():
    assert config_types.OmegaConf is OmegaConf
    for name in ("ConfigError", "ConfigProblems", "AlmostServerError", "NoServerInstancesError", "DictConfig"):
        assert hasattr(config_types, name)
    assert config_types.AGENT_REF_KEY == "agent_ref"


@pytest.mark.parametrize(
    "name",
    [
        "MalformedConfigPathsError",
        "NoServerInstancesError",
        "ConfigMissingValuesError",
        "ConfigInterpolationError",
        "ServerRefNotFoundError",
        "InheritPathNotFoundError",
        "AlmostServerError",
    ],
)
def test_config_errors_are_value_errors_that_survive_pickling(name):
    error = getattr(config_types, name)("message")
    assert isinstance(error, ConfigError)
    assert isinstance(error, ValueError)
    assert str(pickle.loads(pickle.dumps(error))) == "message"


def test_a_reference_is_told_by_its_type():
    assert is_server_ref({"type": "resources_servers", "name": "x"}) == ResourcesServerRef(
        type="resources_servers", name="x"
    )
    assert is_server_ref(OmegaConf.create({"type": "responses_api_models", "name": "x"})) == ModelServerRef(
        type="responses_api_models", name="x"
    )
    assert ServerRefTypeAdapter.validate_python({"type": "responses_api_agents", "name": "x"}).name == "x"


@pytest.mark.parametrize("value", [{"type": "train", "name": "x"}, {"type": "resources_servers"}, "x", 3, None, []])
def test_anything_else_is_no_reference(value):
    assert is_server_ref(value) is None


def test_server_configs_have_the_fields_servers_rely_on():
    assert BaseServerConfig(host="h", port=1).num_workers is None
    config = BaseRunServerInstanceConfig(host="h", port=1, entrypoint="app.py", name="n")
    fields = {"host": "h", "port": 1, "num_workers": None, "entrypoint": "app.py", "domain": None, "name": "n"}
    assert fields.items() <= config.model_dump().items()


def test_a_resources_server_instance_knows_its_parts():
    found, error = instance("resources_servers", domain="math", extra={"a": 1})
    assert error is None
    assert isinstance(found, ResourcesServerInstanceConfig)
    assert found.get_server_ref() == ResourcesServerRef(type="resources_servers", name="name")
    assert found.get_inner_run_server_config_dict().extra.a == 1
    assert found.get_inner_run_server_config().domain is Domain.MATH
    assert found.datasets is None
    assert "server_type_config_dict" not in found.model_dump()


def test_interpolations_are_resolved_for_the_check_and_kept_in_the_block():
    config = OmegaConf.create({"d": "math", "w": {"resources_servers": {"w": {"entrypoint": "a", "domain": "${d}"}}}})
    found, _ = maybe_get_server_instance_config("w", config.w)
    assert found.get_inner_run_server_config().domain is Domain.MATH
    assert OmegaConf.to_container(found.get_inner_run_server_config_dict())["domain"] == "${d}"


def test_agents_have_datasets_and_no_domain():
    found, _ = instance(
        "responses_api_agents",
        domain="whatever",
        datasets=[
            {"name": "e", "type": "example", "jsonl_fpath": "e.jsonl"},
            {"name": "b", "type": "benchmark", "jsonl_fpath": "b.jsonl", "prepare_script": "p.py"},
        ],
    )
    assert isinstance(found, ResponsesAPIAgentServerInstanceConfig)
    assert found.get_inner_run_server_config().domain is None
    assert [type(one) for one in found.datasets] == [DatasetConfig, BenchmarkDatasetConfig]


def test_a_mistake_is_reported_once_not_once_per_kind_of_server():
    _, error = instance("resources_servers", domain="nope")
    assert len(error.errors()) == 1


@pytest.mark.parametrize("block", [{}, {"a": 1}, {"resources_servers": {}}, {"resources_servers": {"a": {}, "b": {}}}])
def test_other_blocks_are_no_servers(block):
    found, error = maybe_get_server_instance_config("x", block)
    assert found is None
    assert isinstance(error, ValidationError)


def test_an_instance_passes_through_the_type_adapter():
    found, _ = instance("responses_api_models")
    assert ServerInstanceConfigTypeAdapter.validate_python(found) is found


def test_almost_servers_have_a_server_type_and_an_entrypoint():
    assert is_almost_server({"resources_servers": {"w": {"entrypoint": "app.py"}}})
    assert is_almost_server(OmegaConf.create({"resources_servers": {"w": {"entrypoint": "app.py"}}}))
    assert not is_almost_server({"resources_servers": {"w": {"domain": "math"}}})
    assert not is_almost_server({"servers": {"w": {"entrypoint": "app.py"}}})
    assert not is_almost_server(None)


@pytest.mark.parametrize("kind", ["train", "validation"])
def test_training_and_validation_data_need_a_licence(kind):
    with pytest.raises(ValidationError, match="needs a `license`"):
        dataset(type=kind)
    assert dataset(type=kind, license="Apache 2.0").num_repeats == 1


@pytest.mark.parametrize("fields", [{"num_repeats": 0}, {"type": "test"}, {"license": "Beerware"}, {"start_idx": -1}])
def test_bad_dataset_fields_are_refused(fields):
    with pytest.raises(ValidationError):
        dataset(**fields)


def test_rows_can_be_sliced():
    assert (dataset(start_idx=2, end_idx=5).start_idx, dataset().end_idx) == (2, None)
    with pytest.raises(ValidationError, match="starts at row 5, after its end_idx of 2"):
        dataset(start_idx=5, end_idx=2)


def test_a_source_is_mirrored_into_the_older_identifier():
    assert dataset(source={"type": "gitlab", **GITLAB}).gitlab_identifier.model_dump() == GITLAB
    assert dataset(source={"type": "huggingface", **HUGGINGFACE}).huggingface_identifier.repo_id == "org/d"


def test_an_older_identifier_is_mirrored_into_the_source_with_a_warning():
    with pytest.warns(DeprecationWarning, match="use `source`"):
        assert dataset(gitlab_identifier=GITLAB).source == GitlabDatasetSource(type="gitlab", **GITLAB)


def test_both_older_identifiers_may_stand_together():
    with pytest.warns(DeprecationWarning, match="use `source`"):
        both = dataset(gitlab_identifier=GITLAB, huggingface_identifier=HUGGINGFACE)
    assert both.source is None


def test_a_source_excludes_the_older_identifiers():
    with pytest.raises(ValidationError, match="keep `source` only"):
        dataset(source={"type": "gitlab", **GITLAB}, huggingface_identifier=HUGGINGFACE)


def test_detection_of_servers_does_not_warn_about_older_identifiers():
    datasets = [{"name": "e", "type": "example", "jsonl_fpath": "e", "gitlab_identifier": GITLAB}]
    found, _ = instance("responses_api_agents", datasets=datasets)
    assert found.datasets[0].gitlab_identifier.version == "0.0.1"


def test_exporters_are_available_when_complete():
    assert WANDBConfig(wandb_project="p", wandb_name="n", wandb_api_key="k").is_available
    assert not WANDBConfig(wandb_project="p", wandb_name="n", wandb_api_key="****").is_available
    assert not WANDBConfig(wandb_project="p").is_available
    assert MLFlowConfig(mlflow_tracking_uri="u", mlflow_experiment_name="e", mlflow_run_name="r").is_available
    assert not MLFlowConfig(mlflow_tracking_uri="u", mlflow_tracking_token="t").is_available


def test_the_older_name_of_upload_rollouts_is_accepted():
    assert UploadRolloutsConfigMixin().upload_rollouts is True
    with pytest.warns(DeprecationWarning, match="use `upload_rollouts`"):
        assert UploadRolloutsConfigMixin(upload_rollouts_to_wandb=False).upload_rollouts is False


def test_aggregate_metrics_start_empty():
    assert AggregateMetrics().model_dump() == {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}
    assert AggregateMetricsRequest(verify_responses=[{"reward": 1}]).verify_responses == [{"reward": 1}]


UPLOAD = {
    "hf_token": "t",
    "hf_organization": "o",
    "hf_collection_name": "c",
    "hf_collection_slug": "s",
    "input_jsonl_fpath": "i",
    "resource_config_path": "r",
}


def test_upload_configs_differ_in_whether_deletion_is_an_option():
    assert UploadJsonlDatasetHuggingFaceConfig(**UPLOAD, ignored=1).hf_dataset_prefix == "Nemotron-RL"
    assert UploadJsonlDatasetHuggingFaceMaybeDeleteConfig(**UPLOAD, delete_from_gitlab=True).delete_from_gitlab
    with pytest.raises(ValidationError, match="delete_from_gitlab"):
        UploadJsonlDatasetHuggingFaceConfig(**UPLOAD, delete_from_gitlab=True)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "exactly one of"),
        ({"output_dirpath": "d", "output_fpath": "f"}, "exactly one of"),
        ({"output_dirpath": "d", "artifact_fpath": "a", "split": "train"}, "not both"),
        ({"output_fpath": "f"}, "say which"),
    ],
)
def test_a_download_needs_one_output_and_at_most_one_selection(fields, reason):
    with pytest.raises(ValidationError, match=reason):
        DownloadJsonlDatasetHuggingFaceConfig(repo_id="r", **fields)


def test_downloads_that_are_fine():
    for fields in (
        {"output_dirpath": "d"},
        {"output_fpath": "f", "split": "train"},
        {"output_fpath": "f", "artifact_fpath": "a"},
    ):
        made = DownloadJsonlDatasetHuggingFaceConfig(repo_id="r", **fields)
        assert made.model_dump(exclude_unset=True) == {"repo_id": "r", **fields}


class SomeCommand(BaseNeMoGymCLIConfig):
    """Does something useful."""

    path: str = Field(description="Where to look.")
    limit: int | None = Field(default=None, description="How many.")


class NoArguments(BaseNeMoGymCLIConfig):
    """Takes nothing."""


@pytest.mark.parametrize("asked", [{"h": True}, {"help": True}])
def test_help_is_printed_when_asked_for(capsys, asked):
    with pytest.raises(SystemExit) as exit_:
        SomeCommand.model_validate(asked)
    assert exit_.value.code == 0
    assert capsys.readouterr().out == (
        "Displaying help for SomeCommand\n\n"
        "Description\n-----------\nDoes something useful.\n\n"
        "Parameters\n----------\n"
        "- path (str)          Where to look. [required]\n"
        "- limit (int | None)  How many. [default: None]\n"
    )


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_printed_for_a_flag_on_the_command_line(capsys, monkeypatch, flag):
    monkeypatch.setattr(sys, "argv", ["ng_x", flag])
    config = GlobalConfigDictParser().parse(GlobalConfigDictParserConfig(offline=True, skip_load_from_dotenv=True))
    with pytest.raises(SystemExit):
        NoArguments.model_validate(config)
    assert "There are no arguments" in capsys.readouterr().out


def test_the_arguments_of_a_program_do_not_change_settings_that_it_gives(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--help"])
    assert SomeCommand.model_validate({"path": "p"}).path == "p"


def test_unknown_keys_are_ignored_because_the_whole_config_is_given():
    assert SomeCommand.model_validate({"path": "p", "policy_model": {}, "help": False}).path == "p"
