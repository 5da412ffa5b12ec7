# SPDX-License-Identifier: Apache-2.0
"""`gym env`: start the servers of a config, build their environments, see what runs, check a config, print one."""

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from omegaconf import OmegaConf

from nemo_gym.cli import render
from nemo_gym.errors import GymError
from nemo_gym.global_config import (
    DRY_RUN_KEY_NAME,
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    get_global_config_dict,
    set_global_config_dict,
)

if TYPE_CHECKING:
    from nemo_gym.cli.run_helper import RunHelper


def start(overrides: list[str]) -> int:
    """Serve until a signal comes."""
    _take(overrides)
    from nemo_gym.cli.run_helper import RunHelper

    helper = RunHelper()
    try:
        code = _serve(helper)
    except GymError as error:
        render.error(str(error))
        code = 1
    if helper.hangs:
        # Python waits at its end for such threads, and that would be for ever.
        os._exit(code)
    return code


def _serve(helper: "RunHelper") -> int:
    from nemo_gym.cli.run_helper import signals_interrupt

    is_ready = False
    try:
        with signals_interrupt():
            helper.start()
            is_ready = True
            if get_global_config_dict().get(DRY_RUN_KEY_NAME):
                return 0
            helper.display_server_instance_info()
            count = len(helper.server_instances)
            render.note(f"All {count} / {count} servers ready! Stop them with Ctrl-C.")
            helper.run_forever()
    except KeyboardInterrupt:
        if not is_ready:
            render.note("stopped before the servers were ready")
            return 130
    finally:
        helper.shutdown()
    render.note("NeMo Gym finished!")
    return 0


def prefetch(overrides: list[str]) -> int:
    """Build the environments of a config's servers without starting them."""
    _take(overrides)
    set_global_config_dict()
    config = get_global_config_dict()
    GlobalConfigDictParser().raise_on_no_server_instances(config)
    from nemo_gym.launch import build_environments, plan_launch

    plans = plan_launch(config)
    asyncio.run(build_environments(config, plans, render.note))
    own = [plan for plan in plans if plan.venv is not None and plan.placement == "process"]
    render.data(f"{len(own)} of {len(plans)} servers have an environment of their own; all are built.")
    return 0


def status(overrides: list[str]) -> int:
    """Show the servers that run; 1 if none does or one is unhealthy."""
    as_json = any(token.lstrip("+") == "json=true" for token in overrides)
    _take([token for token in overrides if not token.lstrip("+").startswith("json=")])
    from nemo_gym.cli.status import show_status

    return show_status(as_json)


def validate(overrides: list[str]) -> int:
    """Check a config; without a model, a stand-in fills its place."""
    _take(overrides)
    parser = GlobalConfigDictParser()
    parser.raise_on_no_server_instances(
        parser.parse(
            GlobalConfigDictParserConfig(
                initial_global_config_dict=GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT, offline=True
            )
        )
    )
    render.data("✓ Config is valid.")
    return 0


def resolve(overrides: list[str]) -> int:
    """Print the merged config."""
    _take(overrides)
    config = GlobalConfigDictParser().parse(GlobalConfigDictParserConfig(offline=True, hide_secrets=True))
    render.data(OmegaConf.to_yaml(config).rstrip())
    return 0


def _take(overrides: list[str]) -> None:
    """The config system reads this process's arguments."""
    sys.argv[1:] = overrides


def __getattr__(name: str) -> type:
    if name == "RunHelper":
        from nemo_gym.cli.run_helper import RunHelper

        return RunHelper
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
