# SPDX-License-Identifier: Apache-2.0
"""The types of a config: server blocks, references, datasets, exporters, dataset transfer, and what can go wrong.

Only shapes: nothing here reads a file or the process-wide config. Loading and checking a whole config is
`nemo_gym.global_config`.
"""

import sys
import warnings
from typing import Annotated, Any, Literal

from omegaconf import DictConfig as DictConfig, OmegaConf as OmegaConf
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter as TypeAdapter,
    ValidationError as ValidationError,
    model_validator,
)

from nemo_gym._config.command_flags import Flag
from nemo_gym._config.config_help import write_help
from nemo_gym._config.dataset_types import (
    BenchmarkDatasetConfig as BenchmarkDatasetConfig,
    DatasetConfig as DatasetConfig,
    DatasetSource as DatasetSource,
    DatasetType as DatasetType,
    GitlabDatasetSource as GitlabDatasetSource,
    HuggingFaceDatasetSource as HuggingFaceDatasetSource,
    JsonlDatasetGitlabIdentifer as JsonlDatasetGitlabIdentifer,
    JsonlDatasetHuggingFaceIdentifer as JsonlDatasetHuggingFaceIdentifer,
)
from nemo_gym._config.server_types import (
    AgentServerRef as AgentServerRef,
    BaseRunServerConfig as BaseRunServerConfig,
    BaseRunServerInstanceConfig as BaseRunServerInstanceConfig,
    BaseRunServerTypeConfig as BaseRunServerTypeConfig,
    BaseServerConfig as BaseServerConfig,
    Domain as Domain,
    ModelServerRef as ModelServerRef,
    ResourcesServerInstanceConfig as ResourcesServerInstanceConfig,
    ResourcesServerRef as ResourcesServerRef,
    ResourcesServerTypeConfig as ResourcesServerTypeConfig,
    ResponsesAPIAgentServerInstanceConfig as ResponsesAPIAgentServerInstanceConfig,
    ResponsesAPIAgentServerTypeConfig as ResponsesAPIAgentServerTypeConfig,
    ResponsesAPIModelServerInstanceConfig as ResponsesAPIModelServerInstanceConfig,
    ResponsesAPIModelServerTypeConfig as ResponsesAPIModelServerTypeConfig,
    ServerInstanceConfig as ServerInstanceConfig,
    ServerInstanceConfigTypeAdapter as ServerInstanceConfigTypeAdapter,
    ServerRef as ServerRef,
    ServerRefTypeAdapter as ServerRefTypeAdapter,
    is_almost_server as is_almost_server,
    is_server_ref as is_server_ref,
    maybe_get_server_instance_config as maybe_get_server_instance_config,
)
from nemo_gym._util.rollout_paths import (
    ROLLOUT_PATH_PREFIX as ROLLOUT_PATH_PREFIX,
    TOKEN_CAPTURE_PATH_SEGMENT as TOKEN_CAPTURE_PATH_SEGMENT,
)
from nemo_gym.errors import (
    AlmostServerError as AlmostServerError,
    ConfigError as ConfigError,
    ConfigInterpolationError as ConfigInterpolationError,
    ConfigMissingValuesError as ConfigMissingValuesError,
    ConfigPathNotFoundError as ConfigPathNotFoundError,
    ConfigProblems as ConfigProblems,
    InheritPathNotFoundError as InheritPathNotFoundError,
    MalformedConfigPathsError as MalformedConfigPathsError,
    NoServerInstancesError as NoServerInstancesError,
    ServerRefNotFoundError as ServerRefNotFoundError,
)

AGENT_REF_KEY = "agent_ref"


class BaseNeMoGymCLIConfig(BaseModel):
    """Base of every command's config: validated from the whole global config, whose other keys it ignores."""

    # A process runs one command at most: the schemas of the others are never needed.
    model_config = ConfigDict(defer_build=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def show_help_if_asked(cls, data: Any) -> Any:
        if isinstance(data, dict | DictConfig) and (data.get("h") or data.get("help")):
            sys.stdout.write(write_help(cls))
            sys.exit(0)
        return data


class UploadJsonlDatasetGitlabConfig(BaseNeMoGymCLIConfig):
    """Upload a JSONL dataset to a GitLab model registry."""

    dataset_name: str = Field(description="Name of the dataset in the registry.")
    version: str = Field(description="Version to create, `x.x.x`.")
    input_jsonl_fpath: str = Field(description="JSONL file to upload.")


class DownloadJsonlDatasetGitlabConfig(JsonlDatasetGitlabIdentifer, BaseNeMoGymCLIConfig):
    """Download a JSONL dataset from a GitLab model registry."""

    output_fpath: str = Field(description="Where to write the file.")


class DeleteJsonlDatasetGitlabConfig(BaseNeMoGymCLIConfig):
    """Delete a dataset from a GitLab model registry."""

    dataset_name: Annotated[str, Flag("--name")] = Field(
        description="Name of the dataset in the registry; case matters."
    )


class BaseUploadJsonlDatasetHuggingFaceConfig(BaseNeMoGymCLIConfig):
    """Upload a JSONL dataset to the Hugging Face hub."""

    hf_token: str = Field(description="Token with write access to the organization.")
    hf_organization: str = Field(description="Organization that owns the dataset.")
    hf_collection_name: str = Field(description="Collection to add the dataset to.")
    hf_collection_slug: str = Field(description="Slug at the end of the collection's URL.")
    dataset_name: str | None = Field(default=None, description="Name of the dataset; by default the server's.")
    input_jsonl_fpath: str = Field(description="JSONL file to upload.")
    resource_config_path: str = Field(description="Config of the resources server, read for its domain.")
    hf_dataset_prefix: str = Field(default="Nemotron-RL", description="First part of the repository's name.")
    split: Literal["train", "validation", "test"] = Field(default="train", description="Split of the rows.")
    create_pr: bool = Field(default=False, description="Open a pull request instead of pushing.")
    revision: str | None = Field(default=None, description="Branch to push to.")
    commit_message: str | None = Field(default=None, description="Commit message.")
    commit_description: str | None = Field(default=None, description="Commit description.")


class UploadJsonlDatasetHuggingFaceConfig(BaseUploadJsonlDatasetHuggingFaceConfig):
    """Upload a JSONL dataset to the Hugging Face hub and delete it from GitLab after a confirmation."""

    @model_validator(mode="before")
    @classmethod
    def refuse_delete_from_gitlab(cls, data: Any) -> Any:
        if isinstance(data, dict | DictConfig) and "delete_from_gitlab" in data:
            raise ValueError("`delete_from_gitlab` is not an option here: this command always offers the deletion")
        return data


class UploadJsonlDatasetHuggingFaceMaybeDeleteConfig(BaseUploadJsonlDatasetHuggingFaceConfig):
    """Upload a JSONL dataset to the Hugging Face hub."""

    delete_from_gitlab: bool = Field(default=False, description="Delete the dataset from GitLab afterwards.")


class DownloadJsonlDatasetHuggingFaceConfig(JsonlDatasetHuggingFaceIdentifer, BaseNeMoGymCLIConfig):
    """Download a dataset from the Hugging Face hub as JSONL."""

    output_dirpath: str | None = Field(default=None, description="Folder for `<split>.jsonl` or the raw file.")
    output_fpath: str | None = Field(default=None, description="File to write; needs `split` or `artifact_fpath`.")
    hf_token: str | None = Field(default=None, description="Token, for private datasets.")
    split: Literal["train", "validation", "test"] | None = Field(default=None, description="Only this split.")

    @model_validator(mode="after")
    def check_one_output_and_one_selection(self) -> "DownloadJsonlDatasetHuggingFaceConfig":
        if bool(self.output_dirpath) == bool(self.output_fpath):
            raise ValueError("give exactly one of `output_dirpath` and `output_fpath`")
        if self.artifact_fpath and self.split:
            raise ValueError("give `artifact_fpath` (a raw file) or `split` (rows of a split), not both")
        if self.output_fpath and not (self.artifact_fpath or self.split):
            raise ValueError("`output_fpath` is one file: say which with `split` or `artifact_fpath`")
        return self


class ExporterConfig(BaseModel):
    """Settings of one destination for metrics and rollouts."""

    model_config = ConfigDict(defer_build=True, hide_input_in_errors=True)

    @property
    def is_available(self) -> bool:
        raise NotImplementedError


class WANDBConfig(ExporterConfig):
    """Weights & Biases; used when all three are set."""

    wandb_project: str | None = Field(default=None, description="Project to log to.")
    wandb_name: str | None = Field(default=None, description="Name of the run.")
    wandb_api_key: str | None = Field(default=None, description="API key.")

    @property
    def is_available(self) -> bool:
        return bool(self.wandb_project and self.wandb_name and self.wandb_api_key and self.wandb_api_key != "****")


class MLFlowConfig(ExporterConfig):
    """MLflow; used when all but the token are set."""

    mlflow_tracking_uri: str | None = Field(default=None, description="Address of the tracking server.")
    mlflow_tracking_token: str | None = Field(default=None, description="Token of the tracking server.")
    mlflow_experiment_name: str | None = Field(default=None, description="Experiment to log to.")
    mlflow_run_name: str | None = Field(default=None, description="Name of the run.")

    @property
    def is_available(self) -> bool:
        return bool(self.mlflow_tracking_uri and self.mlflow_experiment_name and self.mlflow_run_name)


class UploadRolloutsConfigMixin(BaseModel):
    """Whether rollouts go to the exporters along with the metrics."""

    upload_rollouts: bool = Field(default=True, description="Send rollouts, not only metrics, to the exporters.")

    @model_validator(mode="before")
    @classmethod
    def accept_older_name(cls, data: Any) -> Any:
        if not isinstance(data, dict | DictConfig) or "upload_rollouts_to_wandb" not in data:
            return data
        warnings.warn(
            "`upload_rollouts_to_wandb` is deprecated; use `upload_rollouts`", DeprecationWarning, stacklevel=2
        )
        return {"upload_rollouts": data["upload_rollouts_to_wandb"], **data}


class AggregateMetricsRequest(BaseModel):
    """The verify responses of a run, to be summarized by the server that gave them."""

    verify_responses: list[dict[str, Any]]


class AggregateMetrics(BaseModel):
    """The summary of a run: per task, for the whole agent, and the few numbers to look at first."""

    group_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
    agent_metrics: dict[str, Any] = Field(default_factory=dict)
    key_metrics: dict[str, Any] = Field(default_factory=dict)
