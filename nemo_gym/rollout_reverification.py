# SPDX-License-Identifier: Apache-2.0
"""Settings for scoring stored responses again.

`nemo_gym._results.reverify` pairs stored responses with their inputs; `nemo_gym.cli.eval.reverify` is the command.
"""

from pydantic import Field, PositiveInt

from nemo_gym.config_types import BaseNeMoGymCLIConfig


class RolloutReverificationConfig(BaseNeMoGymCLIConfig):
    """Score stored responses again with the verifiers of a config."""

    materialized_inputs_jsonl_fpath: str | None = Field(
        default=None, description="The planned rollouts; by default the file beside the rollouts."
    )
    rollouts_jsonl_fpath: str = Field(description="The stored rollouts.")
    output_jsonl_fpath: str = Field(description="Where the new scores go.")
    force: bool = Field(default=False, description="Also use verifiers that are not known to be stateless.")
    disable_aggregation: bool = Field(default=False, description="Write rollouts only, no aggregate metrics.")
    num_samples_in_parallel: PositiveInt | None = Field(default=None, description="Verifications to run at once.")
    limit: PositiveInt | None = Field(default=None, description="Score only this many, from the start.")
    overwrite: bool = Field(default=False, description="Replace an existing output.")
    resume_from_cache: bool = Field(default=False, description="Score only what the output lacks.")
    judge_failed_only: bool = Field(default=False, description="Score only rollouts whose judge gave no verdict.")
    append: bool = Field(default=False, description="Add to an existing output.")
    quiet: bool = Field(default=False, description="Show no progress.")
    json_summary: bool = Field(default=False, alias="json", description="Print the summary as JSON.")
