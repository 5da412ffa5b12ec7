# SPDX-License-Identifier: Apache-2.0
"""The command line: `gym` (alias `ng`) and the legacy `ng_*` commands.

Programs use `RunHelper` to run servers, and `StatusCommand` to see what runs.
"""

from typing import Any

__all__ = ["GlobalConfigDictParserConfig", "RunHelper", "StatusCommand"]


def __getattr__(name: str) -> Any:
    if name == "RunHelper":
        from nemo_gym.cli.run_helper import RunHelper

        return RunHelper
    if name == "GlobalConfigDictParserConfig":
        from nemo_gym.global_config import GlobalConfigDictParserConfig

        return GlobalConfigDictParserConfig
    if name == "StatusCommand":
        from nemo_gym.cli.status import StatusCommand

        return StatusCommand
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
