# SPDX-License-Identifier: Apache-2.0
"""Settings for scoring stored responses again.

`nemo_gym._results.reverify` pairs stored responses with their inputs; `nemo_gym.cli.eval.reverify` is the command.
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from nemo_gym._config.command_flags import Flag
from nemo_gym.config_types import BaseNeMoGymCLIConfig


class RolloutReverificationConfig(BaseNeMoGymCLIConfig):
    """Score stored responses again with the verifiers of a config."""

    materialized_inputs_jsonl_fpath: Annotated[str | None, Flag("--inputs")] = Field(
        default=None, description="The planned rollouts; by default the file next to the rollouts."
    )
    rollouts_jsonl_fpath: Annotated[str, Flag("--rollouts")] = Field(description="The stored rollouts.")
    output_jsonl_fpath: Annotated[str, Flag("--output", short="-o")] = Field(description="Where the new scores go.")
    num_samples_in_parallel: Annotated[PositiveInt | None, Flag("--concurrency")] = Field(
        default=None, description="Verifications to run at once."
    )
    limit: Annotated[PositiveInt | None, Flag()] = Field(
        default=None, description="Score only this many rollouts, from the start."
    )
    force: Annotated[bool, Flag()] = Field(
        default=False, description="Also score with verifiers that are not known to be stateless."
    )
    overwrite: Annotated[bool, Flag()] = Field(default=False, description="Replace an existing output.")
    resume_from_cache: Annotated[bool, Flag("--resume")] = Field(
        default=False, description="Score only what is missing from the output."
    )
    disable_aggregation: Annotated[bool, Flag()] = Field(
        default=False, description="Write rollouts only, no aggregate metrics."
    )
    judge_failed_only: Annotated[bool, Flag()] = Field(
        default=False, description="Score only rollouts whose judge gave no verdict."
    )
    append: Annotated[bool, Flag()] = Field(default=False, description="Add to an existing output.")
    quiet: Annotated[bool, Flag()] = Field(default=False, description="Show no progress.")
    json_summary: Annotated[bool, Flag()] = Field(default=False, alias="json", description="Print the summary as JSON.")
