# SPDX-License-Identifier: Apache-2.0
"""The other systems whose environments run here, each with the server folder of its adapter."""

from dataclasses import dataclass


@dataclass(frozen=True)
class System:
    """A library of environments."""

    name: str
    """The SYSTEM of `gym import SYSTEM:ID`."""
    folder: str
    """The adapter's folder, as `<type>/<name>`; it contains a `catalog.py`."""
    id_form: str
    """What an ID is, for help texts."""
    installs_ids: bool = False
    """Whether to install an ID unknown to the library as a package."""


SYSTEMS = {
    system.name: system
    for system in (
        System("atropos", "responses_api_agents/atropos_env", "an environment class, as module:Class"),
        System("aviary", "resources_servers/aviary", "an environment by its name, or a class as module:Class"),
        System("gem", "resources_servers/gem_gym", "a registered id, such as game:GuessTheNumber-v0-easy"),
        System("gymnasium", "resources_servers/gymnasium_text", "a registered id, such as FrozenLake-v1"),
        System("openenv", "resources_servers/openenv", "the URL of a running environment"),
        System("reasoning_gym", "resources_servers/reasoning_gym", "a generator, such as chain_sum, or composite"),
        System("skyrl", "resources_servers/skyrl_gym", "a registered id, such as gsm8k"),
        System("textarena", "resources_servers/textarena", "a registered id, such as TicTacToe-v0"),
        System(
            "verifiers", "responses_api_agents/verifiers_env", "an environment package, or a path", installs_ids=True
        ),
        System(
            "verifiers_v0",
            "responses_api_agents/verifiers_v0_env",
            "an environment package, or a path",
            installs_ids=True,
        ),
    )
}
