# SPDX-License-Identifier: Apache-2.0
"""The `datasets:` entries of a config: where the rows are, where they come from, and under which license.

Reading, fetching and preparing the rows is left to the data tools.
"""

import warnings
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

DatasetType = Literal["train", "validation", "example"]
License = Literal[
    "Apache 2.0",
    "MIT",
    "GNU General Public License v3.0",
    "Creative Commons Attribution 4.0 International",
    "Creative Commons Attribution-ShareAlike 4.0 International",
    "CC BY-SA 4.0",
    "CC BY-NC 3.0",
    "NVIDIA Internal Use Only, Do Not Distribute",
    "NVIDIA Evaluation Dataset License Agreement",
    "TBD",
]


class JsonlDatasetGitlabIdentifer(BaseModel):
    """A JSONL file in a GitLab model registry."""

    model_config = ConfigDict(defer_build=True)

    dataset_name: str = Field(description="Name of the dataset in the registry.")
    version: str = Field(description="Version of the dataset, `x.x.x`.")
    artifact_fpath: str = Field(description="Path of the file inside the dataset.")


class JsonlDatasetHuggingFaceIdentifer(BaseModel):
    """A dataset on the Hugging Face hub."""

    model_config = ConfigDict(defer_build=True)

    repo_id: str = Field(description="Repository of the dataset, `organization/name`.")
    artifact_fpath: str | None = Field(default=None, description="Path of one raw file inside the repository.")


class GitlabDatasetSource(JsonlDatasetGitlabIdentifer):
    """`source:` of a dataset that lives in a GitLab model registry."""

    type: Literal["gitlab"]


class HuggingFaceDatasetSource(JsonlDatasetHuggingFaceIdentifer):
    """`source:` of a dataset that lives on the Hugging Face hub."""

    type: Literal["huggingface"]


DatasetSource = Annotated[GitlabDatasetSource | HuggingFaceDatasetSource, Field(discriminator="type")]


class DatasetConfig(BaseModel):
    """One dataset of an agent: training, validation or example rows."""

    model_config = ConfigDict(defer_build=True)

    name: str = Field(description="Name of the dataset.")
    type: DatasetType = Field(description="What the rows are for.")
    jsonl_fpath: str = Field(description="Path of the JSONL file with the rows.")
    num_repeats: int = Field(default=1, ge=1, description="How many times each row is repeated, side by side.")
    source: DatasetSource | None = Field(default=None, description="Where the file can be fetched from.")
    gitlab_identifier: JsonlDatasetGitlabIdentifer | None = Field(
        default=None, description="Older form of a `source` of type gitlab."
    )
    huggingface_identifier: JsonlDatasetHuggingFaceIdentifer | None = Field(
        default=None, description="Older form of a `source` of type huggingface."
    )
    prepare_script: str | None = Field(
        default=None, description="Python file that writes the rows on this machine; its argument is the type."
    )
    license: License | None = Field(default=None, description="License of the rows; required to train or validate.")
    start_idx: int | None = Field(default=None, ge=0, description="First row to use, counted from 0.")
    end_idx: int | None = Field(default=None, ge=0, description="Row to stop before; rows are cut, then repeated.")

    @model_validator(mode="after")
    def check_license(self) -> "DatasetConfig":
        if self.type in ("train", "validation") and self.license is None:
            raise ValueError(f"dataset {self.name!r} is for {self.type}, so it needs a `license`")
        return self

    @model_validator(mode="after")
    def check_slice(self) -> "DatasetConfig":
        if self.start_idx is not None and self.end_idx is not None and self.start_idx > self.end_idx:
            raise ValueError(
                f"dataset {self.name!r} starts at row {self.start_idx}, after its end_idx of {self.end_idx}"
            )
        return self

    @model_validator(mode="after")
    def align_source_and_identifiers(self) -> "DatasetConfig":
        """Fill `source` from the identifiers, or the other way round, since readers may look at either."""
        gitlab = self.gitlab_identifier
        huggingface = self.huggingface_identifier
        if self.source is None and (gitlab or huggingface):
            warnings.warn(
                f"dataset {self.name!r}: gitlab_identifier and huggingface_identifier are deprecated; use `source`",
                DeprecationWarning,
                stacklevel=2,
            )
            if gitlab and not huggingface:
                self.source = GitlabDatasetSource(type="gitlab", **gitlab.model_dump())
            elif huggingface and not gitlab:
                self.source = HuggingFaceDatasetSource(type="huggingface", **huggingface.model_dump())
        elif self.source is not None and (gitlab or huggingface):
            raise ValueError(
                f"dataset {self.name!r} has a `source` and also a gitlab_identifier or huggingface_identifier; "
                "keep `source` only"
            )
        elif isinstance(self.source, GitlabDatasetSource):
            self.gitlab_identifier = JsonlDatasetGitlabIdentifer(**self.source.model_dump(exclude={"type"}))
        elif isinstance(self.source, HuggingFaceDatasetSource):
            self.huggingface_identifier = JsonlDatasetHuggingFaceIdentifer(**self.source.model_dump(exclude={"type"}))
        return self


class BenchmarkDatasetConfig(BaseModel):
    """The one dataset of a benchmark: written by its `prepare_script`, then evaluated."""

    model_config = ConfigDict(defer_build=True)

    name: str = Field(description="Name of the dataset.")
    type: Literal["benchmark"] = Field(description="Always `benchmark`.")
    jsonl_fpath: Path = Field(description="Path of the JSONL file that the prepare script writes.")
    prepare_script: Path = Field(description="Python file whose `prepare()` writes the rows.")
    prompt_config: Path | None = Field(default=None, description="YAML prompt that turns a row into model input.")
    num_repeats: int = Field(default=1, ge=1, description="How many times each row is repeated, side by side.")


AnyDatasetConfig = Annotated[DatasetConfig | BenchmarkDatasetConfig, Field(discriminator="type")]
