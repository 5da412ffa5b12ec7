# SPDX-License-Identifier: Apache-2.0
"""An environment that is started as a run would start it, and played with the right answers up to `/verify`.

What is measured of that is up to the caller.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import DictConfig

from nemo_gym._authoring.contract_checks import Subject
from nemo_gym._authoring.scripted_play import Answer, Table
from nemo_gym._config.overrides import override_token
from nemo_gym._servers.launching.launch import serve_config
from nemo_gym.cli.env.check import Shipped, find_resources_servers, find_stand_in, reduce_config
from nemo_gym.cli.settings import parse_config
from nemo_gym.global_config import GlobalConfigDictParser, GlobalConfigDictParserConfig, set_global_config_dict


class Unmeasured(Exception):
    """An environment that cannot be measured here, and why."""


@dataclass(frozen=True)
class Verification:
    """A call of `/verify` that is ready to be made."""

    body: bytes
    cookies: Mapping[str, str]


@asynccontextmanager
async def serving(name: str, rows_path: Path | None = None) -> AsyncIterator[Subject]:
    """An environment that runs, and its example rows unless others are named, with their right answers."""
    async with serving_resources(name) as (config, prepared, shipped):
        shipped = shipped if rows_path is None else replace(shipped, rows_path=rows_path)
        subject = await shipped.describe(prepared, find_stand_in(config))
        if subject.has_steps or not subject.solutions:
            raise Unmeasured("it has no right answers for `/verify`")
        if subject.needs_model and shipped.block.get("should_use_judge", True):
            raise Unmeasured("it needs a judge")
        yield subject


@asynccontextmanager
async def serving_resources(name: str) -> AsyncIterator[tuple[DictConfig, DictConfig, Shipped]]:
    """A resources server that runs alone: the config of its folder, what is left of it, and what the folder holds."""
    path = f"resources_servers/{name}/configs/{name}.yaml"
    config = parse_config([override_token("config_paths", [path])], needs_model=False)
    [shipped, *_] = find_resources_servers(config)
    prepared = reduce_config(config, shipped)
    set_global_config_dict(None, _returning(prepared))
    async with serve_config(prepared):
        yield config, prepared, shipped


async def up_to_verify(subject: Subject, count: int) -> list[Verification]:
    """Play `count` sessions; of each the call that would score it."""
    call = subject.table._call
    ready = list[Verification]()

    async def but_verify(method: str, path: str, body: bytes, cookies: Mapping[str, str]) -> Answer:
        if path != "/verify":
            return await call(method, path, body, cookies)
        ready.append(Verification(body, cookies))
        return Answer(200, '{"reward": 1.0}')

    table = Table(but_verify)
    tasks = list(zip(subject.rows, subject.solutions or (), strict=True))
    played = await asyncio.gather(*(table.play(*tasks[number % len(tasks)]) for number in range(count)))
    for one in played:
        if one.problem:
            raise Unmeasured(one.problem)
    return ready


async def verify_all(subject: Subject, ready: Sequence[Verification]) -> list[float]:
    """Make the calls, all at once; how long after that each was answered."""
    begin = time.perf_counter()

    async def verify(one: Verification) -> float:
        answer = await subject.table._call("POST", "/verify", one.body, one.cookies)
        elapsed_s = time.perf_counter() - begin
        if answer.status != 200 or answer.body["reward"] < subject.full_reward:
            raise Unmeasured(f"a right answer was not rewarded: {answer.shown}")
        return elapsed_s

    return await asyncio.gather(*map(verify, ready))


def _returning(config: DictConfig) -> type[GlobalConfigDictParser]:
    class FixedConfigParser(GlobalConfigDictParser):
        def parse(self, parse_config: GlobalConfigDictParserConfig | None = None) -> DictConfig:
            return config

    return FixedConfigParser
