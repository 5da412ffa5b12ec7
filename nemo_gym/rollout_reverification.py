# SPDX-License-Identifier: Apache-2.0
"""Scoring stored responses again: what a reverification is told to do.

How stored responses are paired with their inputs is in `nemo_gym._results.reverify`, the command in
`nemo_gym.cli.eval.reverify`.
"""

from pydantic import Field, PositiveInt

from nemo_gym.config_types import BaseNeMoGymCLIConfig


class RolloutReverificationConfig(BaseNeMoGymCLIConfig):
    """Score stored responses again with the verifiers of a config."""

    materialized_inputs_jsonl_fpath: str | None = Field(
        default=None, description="What was planned; by default the file beside the rollouts."
    )
    rollouts_jsonl_fpath: str = Field(description="The stored rollouts.")
    output_jsonl_fpath: str = Field(description="Where the new scores go.")
    force: bool = Field(default=False, description="Also with verifiers that are not known to be stateless.")
    disable_aggregation: bool = Field(default=False, description="Write rollouts only, no aggregate metrics.")
    num_samples_in_parallel: PositiveInt | None = Field(default=None, description="Verifications at once.")
    limit: PositiveInt | None = Field(default=None, description="Only the first so many.")
    overwrite: bool = Field(default=False, description="Replace an output that exists.")
    resume_from_cache: bool = Field(default=False, description="Only what the output does not hold yet.")
    judge_failed_only: bool = Field(default=False, description="Only rollouts whose judge gave no verdict.")
    append: bool = Field(default=False, description="Add to an output that exists.")
    quiet: bool = Field(default=False, description="Show no progress.")
    json_summary: bool = Field(default=False, alias="json", description="Print the summary as JSON.")
