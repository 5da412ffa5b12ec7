# SPDX-License-Identifier: Apache-2.0
"""The command line: `gym` (alias `ng`) and the legacy `ng_*` commands. Programs use `RunHelper`."""

from typing import Any

__all__ = ["GlobalConfigDictParserConfig", "RunHelper"]


def __getattr__(name: str) -> Any:
    if name == "RunHelper":
        from nemo_gym.cli.run_helper import RunHelper

        return RunHelper
    if name == "GlobalConfigDictParserConfig":
        from nemo_gym.global_config import GlobalConfigDictParserConfig

        return GlobalConfigDictParserConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
