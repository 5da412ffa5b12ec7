# SPDX-License-Identifier: Apache-2.0
"""`gym env`: start the servers of a config, and build their virtual environments."""

import os
from functools import partial
from typing import TYPE_CHECKING

from nemo_gym._util.moved_names import find_names
from nemo_gym.cli import render
from nemo_gym.cli.default_model import with_default_model
from nemo_gym.cli.legacy import entry_point
from nemo_gym.cli.settings import CheckedParser, split_off
from nemo_gym.errors import GymError
from nemo_gym.global_config import (
    DRY_RUN_KEY_NAME,
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    get_first_server_config_dict,
    get_global_config_dict,
    set_global_config_dict,
)

if TYPE_CHECKING:
    from nemo_gym.cli.env.offered_protocols import Offer
    from nemo_gym.cli.env.run_helper import RunHelper as RunHelper
    from nemo_gym.cli.env.server_folders import PipListConfig as PipListConfig
    from nemo_gym.cli.env.server_tests import TestAllConfig as TestAllConfig, TestConfig as TestConfig
    from nemo_gym.cli.settings import RunConfig as RunConfig


def start(overrides: list[str]) -> int:
    """Serve until a signal arrives."""
    own, overrides = split_off(overrides, "serve_as")
    offer = None
    if own.get("serve_as") is not None:
        from nemo_gym.cli.env.offered_protocols import Offer

        offer = Offer(overrides, own["serve_as"])
        overrides = offer.overrides
    get_global_config_dict(GlobalConfigDictParserConfig(overrides=with_default_model(overrides)), CheckedParser)
    from nemo_gym.cli.env.run_helper import RunHelper

    helper = RunHelper() if offer is None else offer.open_helper()
    try:
        code = _serve(helper, offer)
    except GymError as error:
        render.error(str(error))
        code = 1
    if helper.hangs:
        # Python waits for such threads at exit, which would be forever.
        os._exit(code)
    return code


def _serve(helper: "RunHelper", offer: "Offer | None") -> int:
    from nemo_gym._servers.processes.event_loop import interrupt_on_signals

    is_ready = False
    try:
        with interrupt_on_signals():
            helper.start()
            is_ready = True
            if get_global_config_dict().get(DRY_RUN_KEY_NAME):
                return 0
            helper.display_server_instance_info()
            if offer is not None:
                for name, url in offer.urls.items():
                    render.note(f"{offer.protocol}: {name} {url}")
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
    """Build the virtual environments of a config's servers, and install their programs, without starting them."""
    own, rest = split_off(overrides, "json")
    set_global_config_dict(GlobalConfigDictParserConfig(overrides=with_default_model(rest)), CheckedParser)
    config = get_global_config_dict()
    GlobalConfigDictParser().raise_on_no_server_instances(config)
    import asyncio  # only starting servers needs it

    from nemo_gym._servers.launching.placement_plan import build_environments, plan_launch
    from nemo_gym.programs import find_install, install_program

    plans = plan_launch(config)
    installs = {plan.name: find_install(get_first_server_config_dict(config, plan.name)) for plan in plans}

    async def build() -> None:
        await build_environments(config, plans, render.note)
        for name, install in installs.items():
            if install is not None:
                await install_program(install, config, partial(_note_of, name))

    asyncio.run(build())
    apart = [plan for plan in plans if plan.venv is not None and plan.placement == "process"]
    packages = {name: [*install.npm, *install.pypi] for name, install in installs.items() if install is not None}
    if own.get("json"):
        told = [(plan.name, plan in apart, packages.get(plan.name, [])) for plan in plans]
        render.json_data([dict(zip(("name", "own_environment", "programs"), one, strict=True)) for one in told])
        return 0
    render.data(f"{len(apart)} of {len(plans)} servers have an environment of their own; all are built.")
    if packages:
        names = ", ".join(dict.fromkeys(name for listed in packages.values() for name in listed))
        render.data(f"installed for agents that are programs: {names}")
    return 0


def _note_of(server: str, line: str) -> None:
    render.note(f"({server}) {line}")


# For programs and scripts: the commands of this group under their older names, without arguments.
run = entry_point("run")
test = entry_point("test")
test_all = entry_point("test_all")
init_resources_server = entry_point("init_resources_server")
dump_config = entry_point("dump_config")
status = entry_point("status")
pip_list = entry_point("pip_list")

if not TYPE_CHECKING:
    __getattr__ = find_names(
        __name__,
        {
            "nemo_gym.cli.env.server_folders": "PipListConfig",
            "nemo_gym.cli.env.server_tests": "TestConfig TestAllConfig",
            "nemo_gym.cli.settings": "RunConfig",
            "nemo_gym.cli.env.run_helper": "RunHelper",
        },
    )
