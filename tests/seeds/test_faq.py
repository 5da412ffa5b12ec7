# SPDX-License-Identifier: Apache-2.0
"""The FAQ: datasets on the Hugging Face Hub, preparing data, profiling, Ray."""

import sys
from types import SimpleNamespace

import pytest
import yaml
from omegaconf import OmegaConf

from nemo_gym import PARENT_DIR
from nemo_gym.config_types import UploadJsonlDatasetHuggingFaceConfig
from nemo_gym.errors import GymError
from nemo_gym.server_utils import initialize_ray
from tests.seeds.items import DATASETS, PREPARING_DATA, item
from tests.seeds.serving import MODEL, ng_run
from tests.support.small_servers import write_server

MULTI_STEP = "resources_servers/example_multi_step/configs/example_multi_step.yaml"
MATH = "resources_servers/math_with_judge/configs/bytedtsinghua_dapo17k.yaml"
POLICY = ("+policy_base_url=http://127.0.0.1:9/v1", "+policy_api_key=sk-hidden", "+policy_model_name=gpt-4.1")

ITEMS = [
    # Hugging Face
    item(
        "env.yaml holds token, organization, collection name and slug",
        "tests/cli/dataset/test_hf.py::test_an_upload_is_named_after_organization_prefix_domain_and_server",
        "tests/cli/dataset/test_hf.py::test_what_is_missing_is_named_at_once",
    ),
    item("Git ignores env.yaml", "tests/seeds/test_project_readme.py::test_git_ignores_what_holds_keys"),
    item("`hf_dataset_prefix` is `Nemotron-RL` unless set", "test_the_prefix_of_datasets_is_the_documented_one"),
    item(
        "a dataset is called ORGANIZATION/PREFIX-DOMAIN-NAME",
        "tests/cli/dataset/test_hf.py::test_an_upload_is_named_after_organization_prefix_domain_and_server",
    ),
    item(
        "`dataset_name` takes the place of the server's name",
        "tests/cli/dataset/test_hf.py::test_a_dataset_name_takes_the_place_of_the_server",
    ),
    item("`ng_upload_dataset_to_hf` uploads", "tests/cli/dataset/test_hf.py::test_the_legacy_command_uploads"),
    item(
        "the config of the resources server is required",
        "tests/cli/dataset/test_hf.py::test_what_is_missing_is_named_at_once",
    ),
    item(
        "the split is train by default, whose rows must have `responses_create_params`",
        "tests/cli/dataset/test_hf.py::test_rows_without_a_required_field_fail_and_nothing_is_uploaded",
    ),
    item(
        "validation and test are not checked",
        "tests/data/test_hub_upload.py::test_rows_of_other_splits_are_not_checked",
    ),
    item(
        "`create_pr` opens a pull request and its link is printed",
        "tests/cli/dataset/test_hf.py::test_a_pull_request_is_made_as_in_the_documentation",
    ),
    item(
        "`revision` is an existing branch without `create_pr`",
        "tests/data/test_hub_upload.py::test_a_commit_can_go_to_a_branch_that_exists",
    ),
    item(
        "with `create_pr` it may be a new one",
        "tests/data/test_hub_upload.py::test_a_pull_request_has_a_branch_of_its_own_where_the_named_one_does_not_exist",
    ),
    item(
        "`commit_message` and `commit_description` describe the commit",
        "tests/cli/dataset/test_hf.py::test_a_pull_request_is_made_as_in_the_documentation",
    ),
    item(
        "without a message, one is generated",
        "tests/data/test_hub_upload.py::test_without_a_message_the_client_writes_one",
    ),
    item(
        "`delete_from_gitlab` deletes there after an upload; it is off by default",
        "tests/cli/dataset/test_hf.py::test_an_upload_deletes_from_gitlab_only_if_told_to",
        "tests/seeds/test_legacy_command_reference.py::test_a_parameter_has_its_documented_default",
    ),
    item(
        "deleting is confirmed at a prompt",
        "tests/cli/dataset/test_hf.py::test_migrate_deletes_only_when_the_user_says_yes",
    ),
    item("`ng_gitlab_to_hf_dataset` does both", "tests/cli/dataset/test_hf.py::test_the_legacy_command_migrates"),
    item(
        "it takes `split`",
        "tests/seeds/test_unified_command_reference.py::test_help_of_a_command_lists_its_documented_flags",
    ),
    item(
        "`ng_delete_dataset_from_gitlab` deletes alone",
        "tests/cli/dataset/test_gitlab.py::test_the_older_commands_do_the_same",
    ),
    item(
        "GitLab tells upper from lower case",
        "tests/data/gitlab/test_datasets.py::test_a_name_in_other_case_is_another_dataset_and_the_one_that_is_there_is_named",
    ),
    item(
        "`split` downloads one split to a folder",
        "tests/cli/dataset/test_hf.py::test_one_split_is_downloaded_to_a_folder_or_a_file",
    ),
    item(
        "without `split`, all are downloaded as files of their own",
        "tests/cli/dataset/test_hf.py::test_every_split_is_downloaded_without_a_token",
    ),
    item(
        "`artifact_fpath` downloads a raw file",
        "tests/cli/dataset/test_hf.py::test_a_raw_file_goes_into_a_folder_under_its_own_name",
    ),
    item(
        "`split` and `artifact_fpath` exclude each other",
        "tests/cli/dataset/test_hf.py::test_a_download_that_cannot_be_is_explained_and_leaves_nothing",
    ),
    # Preparing data
    item(
        "a new server's config has three datasets under its agent",
        "tests/cli/env/test_init.py::test_its_config_is_that_of_the_contract",
    ),
    *DATASETS,
    item(
        "`num_repeats` repeats rows, once by default",
        "tests/data/test_collate.py::test_repeats_stand_side_by_side_and_datasets_in_config_order",
    ),
    item(
        "a Hugging Face identifier has a repository and maybe a file",
        "tests/test_config_types.py::test_an_older_identifier_is_mirrored_into_the_source_with_a_warning",
    ),
    item(
        "without a file, the split of the dataset's type is taken",
        "tests/data/test_hub_download.py::test_a_dataset_of_a_config_is_fetched_by_its_file_or_the_split_of_its_type",
    ),
    item(
        "both identifiers may stand together",
        "tests/test_config_types.py::test_both_older_identifiers_may_stand_together",
    ),
    item(
        "the config of example_multi_step has train and validation with both identifiers",
        "tests/data/test_example_data.py::test_a_dataset_has_the_identifiers_that_are_documented",
    ),
    item(
        "`ng_prepare_data +mode=example_validation` checks its examples",
        "tests/seeds/test_legacy_command_reference.py::test_example_data_is_prepared_as_in_the_examples",
    ),
    item(
        "its train and validation rows are prepared",
        "tests/cli/dataset/test_prepare_data.py::test_the_shipped_rows_are_prepared_without_any_registry",
    ),
    item(
        "`should_download` fetches from Hugging Face",
        "tests/cli/dataset/test_hf.py::test_datasets_of_a_config_are_fetched_with_its_token",
    ),
    item(
        "`data_source=gitlab` fetches from GitLab",
        "tests/data/test_fetch.py::test_the_preferred_registry_counts_where_there_is_a_choice",
        "tests/cli/dataset/test_gitlab.py::test_collate_fetches_what_is_missing",
    ),
    item(
        "a registry that cannot be reached is said",
        "tests/cli/dataset/test_prepare_data.py::test_a_hub_that_cannot_be_reached_is_told_with_the_dataset_and_what_to_do",
    ),
    *PREPARING_DATA,
    item("`ng_run` takes the same configs", "test_the_servers_of_the_multi_step_example_are_planned"),
    # Profiling
    item("`profiling_enabled` is off by default", "test_profiling_is_off_unless_asked_for"),
    item(
        "`bytedtsinghua_dapo17k.yaml` names `math_with_judge_simple_agent` and its training file",
        "test_the_config_of_the_profiling_example_is_there",
    ),
    item(
        "`profiling_results_dirpath` is where profiles go",
        "tests/test_profiling.py::test_an_attached_server_answers_stats_and_writes_its_profile_when_it_ends",
    ),
    item("that folder is relative to where the command is given", "test_profiles_go_to_the_folder_that_was_named"),
    item(
        "earlier profiles of a server are overwritten",
        "tests/test_profiling.py::test_a_later_dump_replaces_the_earlier_one",
    ),
    item(
        "a profile has name, ncall, tsub, ttot and tavg",
        "tests/test_profiling.py::test_the_log_has_one_line_per_function_with_calls_and_times",
    ),
    # Ray
    item("`initialize_ray` of `server_utils` connects a server", "test_ray_joins_the_cluster_that_the_config_names"),
    item("`ray_head_node_address` joins an existing cluster", "test_ray_joins_the_cluster_that_the_config_names"),
    item(
        "without it, a local cluster is started and its address kept in the config",
        "test_ray_starts_a_cluster_and_keeps_its_address",
    ),
    item("without the package, the extra is named", "test_a_missing_ray_is_named_with_its_extra"),
    item(
        "where Ray may not run, servers that do not use it run all the same",
        "tests/servers/launching/test_placement_plan.py::test_a_server_runs_in_this_process_unless_something_speaks_against_it",
        "tests/cli/env/test_config.py::test_validating_loads_neither_ray_nor_a_web_server",
    ),
    # Others
    item(
        "reinforcement learning on labelled data needs a scorer that compares exactly",
        "resources_servers/string_match/tests/test_app.py::test_the_expected_text_in_its_place_is_worth_one",
    ),
    item(
        "the documentation builds without warnings",
        "tests/test_development_setup.py::test_a_fresh_clone_is_set_up_and_used_as_documented",
    ),
    item(
        "`extra_body` of a vLLM model turns an endpoint's cache off",
        "test_extra_body_reaches_the_config_of_the_model",
        "responses_api_models/vllm_model/tests/test_app.py::test_extra_body_is_config_under_metadata_under_the_request",
    ),
]


def agent_of(path: str, name: str) -> dict:
    return yaml.safe_load((PARENT_DIR / path).read_text())[name]["responses_api_agents"]["simple_agent"]


def test_the_prefix_of_datasets_is_the_documented_one():
    assert UploadJsonlDatasetHuggingFaceConfig.model_fields["hf_dataset_prefix"].default == "Nemotron-RL"


def test_the_servers_of_the_multi_step_example_are_planned(run, tmp_path):
    said = run(tmp_path, "ng_run", f"+config_paths=[{MULTI_STEP},{MODEL}]", *POLICY, "+dry_run=true")
    assert said.code == 0, said.err
    assert "example_multi_step_simple_agent" in said.out + said.err


# --- profiling --------------------------------------------------------------------------------------------------------


def test_profiling_is_off_unless_asked_for(run, tmp_path):
    said = run(tmp_path, "ng_dump_config", f"+config_paths=[{MULTI_STEP},{MODEL}]", *POLICY)
    assert not yaml.safe_load(said.out).get("profiling_enabled")


def test_the_config_of_the_profiling_example_is_there():
    train = agent_of(MATH, "math_with_judge_simple_agent")["datasets"][0]
    assert train["jsonl_fpath"] == "resources_servers/math_with_judge/data/dapo17k_bytedtsinghua_train.jsonl"


def test_profiles_go_to_the_folder_that_was_named(tmp_path):
    write_server(tmp_path, "small")
    words = ("+config_paths=[resources_servers/small/configs/small.yaml]", "+profiling_enabled=true")
    with ng_run(tmp_path, *words, "+profiling_results_dirpath=results/profiling/small"):
        pass
    profiles = [path for path in (tmp_path / "results/profiling/small").rglob("*") if path.is_file()]
    assert any("ncall" in path.read_text(errors="replace") for path in profiles)


# --- Ray --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ray(monkeypatch) -> SimpleNamespace:
    """A Ray that notes how it is started: a real cluster takes longer than all other tests of this file."""
    here = SimpleNamespace(gcs_address="127.0.0.1:6379")
    fake = SimpleNamespace(started=[], is_initialized=lambda: False, get_runtime_context=lambda: here)

    def init(address: str | None = None, **_: object) -> SimpleNamespace:
        fake.started.append(address)
        return here

    fake.init = init
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


@pytest.fixture
def config(monkeypatch):
    given = OmegaConf.create({})
    monkeypatch.setattr("nemo_gym.global_config._GLOBAL_CONFIG_DICT", given)
    return given


def test_ray_joins_the_cluster_that_the_config_names(ray, config):
    config.ray_head_node_address = "ray://your-cluster-address:10001"
    initialize_ray()
    assert ray.started == ["ray://your-cluster-address:10001"]


def test_ray_starts_a_cluster_and_keeps_its_address(ray, config):
    initialize_ray()
    assert ray.started == ["local"]
    assert config.ray_head_node_address == "127.0.0.1:6379"


def test_a_missing_ray_is_named_with_its_extra(config, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(GymError, match=r"nemo-gym\[ray\]"):
        initialize_ray()


# --- others -----------------------------------------------------------------------------------------------------------


def test_extra_body_reaches_the_config_of_the_model(run, tmp_path):
    block = {"policy_model": {"responses_api_models": {"vllm_model": {"extra_body": {"cache": {"no-cache": True}}}}}}
    (tmp_path / "env.yaml").write_text(yaml.safe_dump(block))
    vllm = "responses_api_models/vllm_model/configs/vllm_model.yaml"
    said = run(tmp_path, "ng_dump_config", f"+config_paths=[{MULTI_STEP},{vllm}]", *POLICY)
    model = yaml.safe_load(said.out)["policy_model"]["responses_api_models"]["vllm_model"]
    assert model["extra_body"] == {"cache": {"no-cache": True}}
