# SPDX-License-Identifier: Apache-2.0
"""`gym eval prepare`: run the prepare scripts of benchmarks and report what they wrote."""

from typing import Annotated, Any

from pydantic import Field, PositiveInt

from nemo_gym._config.command_flags import Flag
from nemo_gym.benchmarks import prepare_benchmarks
from nemo_gym.cli import render
from nemo_gym.cli.settings import make_parser, read_settings
from nemo_gym.config_types import BaseNeMoGymCLIConfig
from nemo_gym.global_config import GlobalConfigDictParserConfig, get_global_config_dict, set_global_config_dict


class PrepareBenchmarkConfig(BaseNeMoGymCLIConfig):
    """Prepare the data of a benchmark by running its `prepare.py`."""

    prepare_script_args: dict[str, Any] = Field(
        default_factory=dict, description="Arguments for `prepare`, as in `++prepare_script_args.split=test`."
    )
    use_cached_prepared_benchmarks: Annotated[bool, Flag("--cached")] = Field(
        default=False, description="Skip benchmarks whose data is already prepared."
    )
    num_prepare_benchmark_processes: Annotated[PositiveInt, Flag("--processes")] = Field(
        default=1, description="How many scripts to run at once."
    )
    json_summary: Annotated[bool, Flag()] = Field(
        default=False, alias="json", description="Print what was prepared as JSON."
    )


def prepare(overrides: list[str]) -> int:
    """Prepare every benchmark of a config; no model is needed."""
    set_global_config_dict(
        GlobalConfigDictParserConfig(
            overrides=overrides,
            initial_global_config_dict=GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT,
            offline=True,
        ),
        make_parser(PrepareBenchmarkConfig),
    )
    config = get_global_config_dict()
    settings = read_settings(PrepareBenchmarkConfig, config)
    prepared = prepare_benchmarks(
        config,
        settings.prepare_script_args,
        use_cached=settings.use_cached_prepared_benchmarks,
        processes=settings.num_prepare_benchmark_processes,
    )
    if settings.json_summary:
        render.json_data(
            [
                {
                    "agent": one.agent,
                    "dataset": one.dataset,
                    "path": str(one.path),
                    "rows": one.rows,
                    "cached": one.is_cached,
                }
                for one in prepared
            ]
        )
        return 0
    for one in prepared:
        how = "Already prepared" if one.is_cached else "Prepared"
        render.data(f"{how}: {one.rows} rows of {one.dataset!r} for {one.agent!r} in {one.path}")
    return 0
