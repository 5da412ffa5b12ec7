# SPDX-License-Identifier: Apache-2.0
"""Steps a second of environments of other systems, with 64 sessions at once, beside the bare library on all cores.

Both play the example rows of the server with the actions that solve them, from reset to end. Bare is a loop in the
server's own Python; through us is everything: a client here, the server in its process, each episode in its own.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import uvloop

from nemo_gym._bench.report import LeftOut, Row
from nemo_gym._bench.verifying import serving_resources
from nemo_gym._servers.launching.placement_plan import plan_launch
from nemo_gym.cpu_pool import usable_cpus
from nemo_gym.errors import GymError
from nemo_gym.global_config import get_global_config_dict
from nemo_gym.server_utils import ServerClient, raise_for_status
from nemo_gym.testing import reply

SERVERS = ("gem_gym", "gymnasium_text", "textarena")
_SESSIONS = 64
_SECONDS = 4.0
_BARE_TIMEOUT_S = 120
_BOUND = 2.0
"""At least half of the bare speed times the number of cores."""


def run() -> list[Row]:
    """Measure every system that can be had here."""
    rows = [row for name in SERVERS for row in _measure(name)]
    if not rows:
        raise LeftOut("none of the libraries can be installed here; is a package registry in reach?")
    return rows


def _measure(name: str) -> list[Row]:
    try:
        through, bare, cores = uvloop.run(_run(name))
    except GymError as error:
        print(f"  {name}: not measured: {str(error).splitlines()[0]}", file=sys.stderr)
        return []
    return [
        Row(f"{name}: bare, one core", bare, "steps/s"),
        Row(f"{name}: through us, {_SESSIONS} sessions", through, "steps/s"),
        Row(f"{name}: bare on {cores} cores ÷ through us", bare * cores / through, "×", _BOUND),
    ]


async def _run(name: str) -> tuple[float, float, int]:
    async with serving_resources(name):
        [plan] = [plan for plan in plan_launch(get_global_config_dict()) if plan.impl == name]
        assert plan.venv is not None
        client = ServerClient.load_from_global_config()
        bare = await asyncio.to_thread(_measure_bare, str(plan.venv.python), name)
        episodes = [(row, [reply(text).model_dump() for text in texts]) for row, texts in bare["episodes"]]
        # Every session has had a process once, so that starting them is not measured.
        first = (_play(client, plan.name, *episodes[place % len(episodes)]) for place in range(_SESSIONS))
        await asyncio.gather(*first)
        deadline = time.perf_counter() + _SECONDS
        began = time.perf_counter()
        steps = await asyncio.gather(
            *(_play_until(client, plan.name, episodes, place, deadline) for place in range(_SESSIONS))
        )
        return sum(steps) / (time.perf_counter() - began), bare["steps"] / bare["cpu_s"], usable_cpus()


def _measure_bare(python: str, name: str) -> dict[str, Any]:
    command = [python, "-m", "nemo_gym._bench.bare_steps", name, str(_SECONDS / 2)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=_BARE_TIMEOUT_S, check=True).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


async def _play_until(client: ServerClient, server: str, episodes: Sequence[Any], place: int, deadline: float) -> int:
    steps = 0
    while time.perf_counter() < deadline:
        steps += await _play(client, server, *episodes[place % len(episodes)])
        place += 1
    return steps


async def _play(client: ServerClient, server: str, row: dict[str, Any], actions: Sequence[dict[str, Any]]) -> int:
    begun = await client.post(server, "/reset", json=row)
    await raise_for_status(begun)
    steps = 0
    for action in actions:
        reply_to = await client.post(server, "/step", json={**row, "response": action}, cookies=begun.cookies)
        await raise_for_status(reply_to)
        steps += 1
        told = await reply_to.json()
        if told["terminated"] or told["truncated"]:
            break
    return steps
